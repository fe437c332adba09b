"""What `nnzbench compile` compiles: every program of every kernel, or a sample that leaves nothing untried.

A sample has all programs of the architectures that the table marks `whole`, and for the others of each kernel every
entry point on each, and on one of those with the same capabilities every value of every define and every part of a
generated program's variant. A program that no `whole` architecture has is in it for one that has it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

from nnzbench.core import paths
from nnzbench.core.architectures import architecture, compiled_architectures, number, whole_architectures
from nnzbench.core.plan import Launch, Unsupported
from nnzbench.devices.build.cache import Job
from nnzbench.kernels.registry import Kernel
from nnzbench.kernels.samples import sample_plans

SUPPORT = "(support)"
"""Stands for the kernel where a `.cu` file is used by the suite itself rather than by a registered kernel."""


@dataclass(frozen=True)
class Wanted:
    """Where a compiled program's numbers go."""

    kernel: str
    variant: str
    job: Job
    launches: tuple[Launch, ...]

    @property
    def generated(self) -> bool:
        """Whether the program is its plan's own text, which its variant names, and not a file with defines."""
        return "\n" in self.job.source

    def group(self) -> str:
        """What a sample is taken of: the programs of a file, or those that a kernel generates."""
        return self.kernel if self.generated else self.job.source

    def program(self) -> tuple[object, ...]:
        """The same for one program on several architectures."""
        return self.group(), *([self.variant] if self.generated else self.job.options())

    def traits(self) -> set[Hashable]:
        """What a sample of the group's programs must have once: entry points on each architecture, and values for each
        set of capabilities, as sources branch by what an architecture can do.
        """
        values = re.split(r"[_ ]", self.variant) if self.generated else self.job.options()
        can = architecture(f"sm_{number(self.job.arch)}").capabilities
        entries = {(self.job.arch, entry) for entry in (*(launch.entry for launch in self.launches), "any")}
        return {*entries, *((can, value) for value in values)}


def programs_of(chosen: Iterable[Kernel], arches: Iterable[str]) -> tuple[list[Wanted], dict[tuple[str, str], str]]:
    """What to compile, each variant's program once, and why a kernel does not support an architecture, by both."""
    wanted: list[Wanted] = []
    refused: dict[tuple[str, str], str] = {}
    for kernel in chosen:
        for arch in arches:
            seen = set()
            try:
                for plan in sample_plans(kernel, arch):
                    for stage in plan.stages():
                        job = Job.of(stage, arch)
                        if (plan.variant, job.identity()) not in seen:
                            seen.add((plan.variant, job.identity()))
                            wanted.append(Wanted(kernel.name, plan.variant, job, stage.launches))
            except Unsupported as reason:
                refused[kernel.name, arch] = str(reason)
    return wanted, refused


def first_look(chosen: Sequence[Kernel], arches: Iterable[str], count: int) -> list[Wanted]:
    """The first program of `count` kernels on each architecture, going on with the next kernels on the next one."""
    found: list[Wanted] = []
    waiting = itertools.cycle(chosen)
    for arch in arches:
        firsts = (_first(kernel, arch) for kernel in itertools.islice(waiting, len(chosen)))
        found += itertools.islice(filter(None, firsts), count)
    return found


def _first(kernel: Kernel, arch: str) -> Wanted | None:
    with suppress(Unsupported):
        for plan in sample_plans(kernel, arch):
            stage = plan.stages()[0]
            return Wanted(kernel.name, plan.variant, Job.of(stage, arch), stage.launches)
    return None


def support_files(wanted: Iterable[Wanted], known: Mapping[str, Kernel], arches: Iterable[str]) -> list[Wanted]:
    """The `.cu` files that no plan names: they must compile as they are, without defines.

    A kernel that has no plan on these architectures is asked for another's, so that its file does not pass for one.
    """
    used = {one.job.source for one in wanted}
    for name in known.keys() - {one.kernel for one in wanted}:
        for arch in compiled_architectures():
            with suppress(Unsupported):
                used |= {stage.source for plan in sample_plans(known[name], arch) for stage in plan.stages()}
                break
    unused = sorted(path.name for path in paths.kernels_cu().glob("*.cu") if path.name not in used)
    return [Wanted(SUPPORT, name, Job("cuda", name, arch), ()) for name in unused for arch in arches]


def sampled(wanted: list[Wanted]) -> list[Wanted]:
    """All of `whole` architectures; of each group elsewhere, programs with all of its traits, and those only there."""
    names = whole_architectures()
    whole = {one.job.identity(): one.program() for one in wanted if f"sm_{number(one.job.arch)}" in names}
    known = {*whole.values()}
    groups: dict[str, dict[str, set[Hashable]]] = {}
    for one in wanted:
        if one.job.identity() not in whole:
            new = set() if one.program() in known else {one.program()}
            groups.setdefault(one.group(), {}).setdefault(one.job.identity(), set()).update(one.traits() | new)
    sample = {*whole, *(name for members in groups.values() for name in cover(members))}
    return [one for one in wanted if one.job.identity() in sample]


def cover(members: Mapping[str, Set[Hashable]]) -> list[str]:
    """Members in which each trait of any member occurs at least once; as few as a greedy choice finds.

    Each step takes the member with the most traits that are still missing, the first of several; one without traits is
    never taken. The same members in the same order always give the same answer.
    """
    missing: set[Hashable] = set().union(*members.values())
    taken = []
    while missing:
        name = max(members, key=lambda one: len(members[one] & missing))
        missing -= members[name]
        taken.append(name)
    return taken
