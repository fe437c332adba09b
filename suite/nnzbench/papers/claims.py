"""The rules of all papers' claims."""

from __future__ import annotations

from nnzbench.papers import claims_others, claims_tensor_cores
from nnzbench.papers.sparsert import claims as sparsert
from nnzbench.papers.sputnik import claims as sputnik
from nnzbench.report.claims.sides import Rule

RULES: dict[str, Rule] = {**sparsert.RULES, **sputnik.RULES, **claims_others.RULES, **claims_tensor_cores.RULES}
