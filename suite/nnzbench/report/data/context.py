"""Words that every caption needs: which GPU, which policy, when and on what software."""

from __future__ import annotations

from typing import Any

POLICIES = {
    "hot": "launches back to back in one CUDA graph, operands as the last launch left them",
    "cold": "L2 overwritten before each launch, one launch between two events",
    "stream": "launches back to back in one CUDA graph, each over another copy of the weights, all copies together at "
    "least four times what L2 holds: what a layer of a model sees",
    "loop": "25 launches enqueued one by one, then 100 between two events, operands as the last launch left them: as "
    "many benchmarks time",
}


def gpu_name(slug: str, environment: dict[str, Any]) -> str:
    """The driver's name of the GPU where the environment has it, else the slug's words in capitals."""
    gpu = environment.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    if isinstance(name, str) and name:
        return name
    vendor, _, model = slug.partition("-")
    return f"{vendor} {model.replace('-', ' ')}".upper().strip()


def commit(environment: dict[str, Any]) -> str:
    """Abbreviated commit that measured, or a word saying that it is not known."""
    source = environment.get("source")
    named = source.get("commit") if isinstance(source, dict) else None
    if not isinstance(named, str):
        return "an unnamed version"
    return f"commit {named[:12]}" + (" with changes" if source and source.get("dirty") else "")


def recorded_on(environment: dict[str, Any]) -> str:
    """Date of the environment's snapshot (YYYY-MM-DD), empty where it has none."""
    for name in ("recorded_at", "created_at", "timestamp", "time", "date", "utc"):
        if isinstance(environment.get(name), str):
            return str(environment[name])[:10]
    return ""
