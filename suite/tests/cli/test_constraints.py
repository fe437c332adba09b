"""The versions that .ci/run installs: one for each dependency and Python, within the bounds of pyproject.toml."""

import re
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nnzbench.core.paths import kernels_cu

ROOT = kernels_cu().parent


def requirements():
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted, extras = [*project["dependencies"]], ["dev"]
    while extras:
        for text in project["optional-dependencies"][extras.pop()]:
            one = Requirement(text)
            if one.name == "nnzbench":
                extras += one.extras
            else:
                wanted.append(text)
    return sorted({*wanted})


def test_every_dependency_has_one_version_within_its_bounds():
    pins = [
        Requirement(line) for line in (ROOT / ".ci/constraints.txt").read_text("utf-8").splitlines() if line[:1] != "#"
    ]
    for wanted in map(Requirement, requirements()):
        for python in ("3.10", "3.11", "3.12", "3.13"):
            here = {"python_full_version": f"{python}.1", "python_version": python, "sys_platform": "linux"}
            found = [
                pin
                for pin in pins
                if canonicalize_name(pin.name) == canonicalize_name(wanted.name)
                and (pin.marker is None or pin.marker.evaluate(here))
            ]
            assert len(found) == 1, f"{wanted} on Python {python}: make constraints"
            (version,) = re.findall(r"^==([\w.+]+)$", str(found[0].specifier))
            assert wanted.specifier.contains(version, prereleases=True), f"{found[0]} is not {wanted}: make constraints"
