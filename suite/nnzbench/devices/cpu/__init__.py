"""Runs `.cu` kernels on the processor: one program per plan, built with the system's C++ compiler.

`cxx/` is the runtime (fibers, scheduler, the CUDA language for a C++20 compiler), `build` makes programs through a
cache, `job` writes what a program reads, `findings` reads what a sanitizer says.
"""

from __future__ import annotations


class LaunchError(RuntimeError):
    """A launch is ill-formed, or the kernel crashed or broke a rule of barriers and warps (names the line)."""


class SanitizerError(LaunchError):
    """A sanitizer's first finding with the `.cu` file and line; `log` is its whole report."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log
