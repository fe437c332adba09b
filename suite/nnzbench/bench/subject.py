"""What candidates are tried on: a problem with its operands and its float64 result, each made once."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from nnzbench.bench.phases import Phases
from nnzbench.bench.values import Moved, Outside, moved, outside
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.operands import Maker, Operands, make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference, reference


@dataclass
class Subject:
    """A problem with its operands; what is made of them is made when it is first asked for."""

    problem: Problem
    operands: Operands | None
    phases: Phases = field(default_factory=Phases)
    reason: str = ""
    """Why there are no operands."""

    @functools.cached_property
    def _reference(self) -> Reference:
        with self.phases.of("reference"):
            return reference(self.problem, self.operands or make_operands(self.problem))

    def truth(self) -> Reference:
        """The float64 result. Raises `MatrixError` where there are no operands."""
        return self._reference

    @functools.cached_property
    def outside(self) -> Outside | None:
        """What kernels that are not ours must follow, drawn at the first of them."""
        return outside(self.problem, self.operands, self.truth) if self.operands else None

    @functools.cached_property
    def moved(self) -> Moved | None:
        """The same with other weights; None where the results of these don't follow at once."""
        return moved(self.problem, self.operands, self.truth()) if self.operands else None


class Subjects:
    """Makes one subject after another and keeps the last: the next step is often of the same problem or matrix."""

    def __init__(self, phases: Phases) -> None:
        self._phases, self._maker = phases, Maker()
        self._last: Subject | None = None

    def of(self, problem: Problem) -> Subject:
        """The problem with its operands, or with the reason why they can't be made."""
        if self._last is not None and self._last.problem == problem:
            return self._last
        self._last = None  # there may be no memory for two
        try:
            with self._phases.of("operands"):
                self._last = Subject(problem, self._maker.operands(problem), self._phases)
        except MatrixError as error:
            return Subject(problem, None, self._phases, f"no operands: {error}")
        return self._last
