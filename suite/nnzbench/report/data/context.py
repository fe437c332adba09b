"""Words that every caption needs: which GPU, which policy, when and on what software."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import pandas as pd

POLICIES = {
    "hot": "launches back to back in one CUDA graph, operands as the last launch left them",
    "cold": "L2 overwritten before each launch, one launch between two events",
    "stream": "launches back to back in one CUDA graph, each over another copy of the weights, all copies together at "
    "least four times what L2 holds: what a layer of a model sees",
}


def policies(frame: pd.DataFrame) -> list[str]:
    """Policies with a time, hot first."""
    return known_first(set(frame.loc[frame["median_us"].notna(), "policy"]), POLICIES)


def known_first(present: Set[str], known: Iterable[str]) -> list[str]:
    """Those `present`: the `known` ones in their order, then the others by name."""
    named = [name for name in known if name in present]
    return named + sorted(present - set(named))


def policy_text(policy: str) -> str:
    """`hot policy: ...` in full."""
    return f"{policy} policy: {POLICIES[policy]}" if policy in POLICIES else f"{policy} policy"


def sentence(text: str) -> str:
    """`text` with a capital first letter, the others as they are, and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def gpu_name(slug: str, environment: dict[str, Any]) -> str:
    """The driver's name of the GPU where the environment has it, else the slug with its vendor in capitals."""
    gpu = environment.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    if isinstance(name, str) and name:
        return name
    vendor, _, model = slug.partition("-")
    return f"{vendor.upper()} {model.upper()}".strip()


def commit(environment: dict[str, Any]) -> str:
    """Abbreviated commit that measured, or a word saying that it is not known."""
    source = environment.get("source")
    named = source.get("commit") if isinstance(source, dict) else None
    if not isinstance(named, str):
        return "an unnamed version"
    return f"commit {named[:12]}" + (" with changes" if source and source.get("dirty") else "")


def facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """Plain values of the environment, nested names joined by dots, in the file's order."""
    return [(name, value) for name, value in _flatten("", environment) if value]


def _flatten(prefix: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            pair for name, inner in value.items() for pair in _flatten(f"{prefix}.{name}" if prefix else name, inner)
        ]
    if isinstance(value, list):
        return [(prefix, ", ".join(str(item) for item in value))]
    return [(prefix, "" if value is None else str(value))]


def recorded_on(environment: dict[str, Any]) -> str:
    """Date of the environment's snapshot (YYYY-MM-DD), empty where it has none."""
    for name in ("recorded_at", "created_at", "timestamp", "time", "date", "utc"):
        if isinstance(environment.get(name), str):
            return str(environment[name])[:10]
    return ""
