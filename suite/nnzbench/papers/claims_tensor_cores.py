"""Rules for the claims of Flash-LLM and SpInfer: unstructured weights on tensor cores."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.report.claims.quantities import Crossover, How, Side
from nnzbench.report.claims.sides import CUBLAS, DENSE_BEST, OURS, Rule, judged, speedup, unmeasured

LAYERS = "llm_layers"
FLASH_LLM = Side("Flash-LLM's kernel", ("flash_llm",), math="f16")
SPINFER = Side("SpInfer's kernel", ("spinfer",), math="f16")
SPUTNIK = Side("Sputnik's kernel at the paper's choice of tile", ("sputnik",), variant="heuristic", math="f16")
DENSE, DENSE_TODAY = replace(CUBLAS, math="f16"), replace(DENSE_BEST, math="f16")
OURS_HALF = replace(OURS, math="f16")
FLASH_WORDS = "`flash_llm`, the paper's kernel written anew, K in as many parts as are fastest"
SPINFER_WORDS = "`spinfer`, the paper's kernel written anew, K in as many parts as are fastest"
_SPARTA = "SparTA is not part of this suite."
_MODELS = "Whole models are not part of this suite."


def _cases(columns: str, levels: str) -> str:
    """Uniform patterns on layers of Llama models."""
    return rf"(llama\d?_\d+b_(?:qkvo|qo|up|down)_\d+x\d+x(?:{columns})_(?:{levels}))"


def _flash(level: int, rival: Side, today: Side | None = None) -> Rule:
    scope, cases = f"layers of Llama models, 8 to 64 columns, {level} % uniform zeros", _cases("8|16|32|64", f"{level}")
    return judged(
        FLASH_WORDS,
        speedup(LAYERS, scope, cases, FLASH_LLM, rival),
        (f"{OURS.name}, against {DENSE_TODAY.name}", speedup(LAYERS, scope, cases, OURS_HALF, DENSE_TODAY)),
        today=speedup(LAYERS, scope, cases, FLASH_LLM, today) if today else None,
    )


def _spinfer(rival: Side, how: How) -> Rule:
    scope, cases = "layers of Llama models, 8 to 32 columns, 50 to 70 % uniform zeros", _cases("8|16|32", "50|60|70")
    return judged(SPINFER_WORDS, speedup(LAYERS, scope, cases, SPINFER, rival, how))


def _spinfer_crossover() -> Rule:
    cases, scope = r"(llama_70b_qo_8192x8192x16_\d+)", "8192 x 8192, 16 columns, uniform zeros"

    def quantity(dense: Side) -> Crossover:
        return Crossover(LAYERS, scope, replace(SPINFER, cases=cases), replace(dense, cases=cases), "contradicted")

    return judged(SPINFER_WORDS, quantity(DENSE), today=quantity(DENSE_TODAY))


RULES = {
    **{f"flash-llm-cublas-{level}": _flash(level, DENSE, DENSE_TODAY) for level in (70, 80, 90)},
    **{f"flash-llm-sputnik-{level}": _flash(level, SPUTNIK) for level in (70, 80, 90)},
    **{f"flash-llm-sparta-{level}": unmeasured(LAYERS, _SPARTA) for level in (70, 80, 90)},
    "flash-llm-deepspeed": unmeasured(LAYERS, _MODELS),
    "flash-llm-fastertransformer": unmeasured(LAYERS, _MODELS),
    "spinfer-models": unmeasured(LAYERS, _MODELS),
    "spinfer-flash-llm": _spinfer(FLASH_LLM, "largest"),
    "spinfer-sparta": unmeasured(LAYERS, _SPARTA),
    "spinfer-cublas-from": _spinfer_crossover(),
}
