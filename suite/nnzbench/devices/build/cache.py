"""From a plan's program to a cubin with its resources, through a cache that concurrent runs can share.

A cache entry is `<key>.cubin` and `<key>.json`, each put in place by one rename. The JSON is written last and holds
the cubin's SHA-256, so that a half-written or damaged entry is noticed and compiled again. What does not compile is
kept too, with its log; time-outs are not, as the next machine may be faster.

CUDA 13 does not compile for sm_70, but still assembles its PTX for a newer GPU. So PTX for an architecture that the
compiler here has dropped is made where CUDA 12 is (`nnzbench run ... --target-arch sm_70 --ptx FOLDER`, no GPU needed)
and found in the folder `$NNZBENCH_PTX` by what it was made from: `<key>.ptx`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from nnzbench.core import paths
from nnzbench.core.architectures import architecture, number
from nnzbench.core.plan import Plan, Resources, Unsupported
from nnzbench.devices.build import toolchain

COMPILER = "compiler"
"""File of the folder that names the NVRTC which made it."""


def _made_elsewhere(name: str) -> bytes | None:
    """A file of the folder of PTX; None where there is none, or no folder."""
    folder = paths.ptx()
    path = folder / name if folder else None
    return path.read_bytes() if path and path.is_file() else None


def write_ptx(folder: Path, key: str, ptx: bytes) -> None:
    """Keeps the PTX under its key."""
    _put(folder / f"{key}.ptx", ptx)


def ptx_compiler() -> str | None:
    """Version of the NVRTC that made the folder's PTX; None where it does not say, or there is no folder."""
    told = _made_elsewhere(COMPILER)
    return told.decode().strip() if told is not None else None


_FORMAT = 1  # of a cache entry; part of the key


@dataclass(frozen=True)
class Compiled:
    """A cubin on disk and what each of its entry points uses."""

    path: Path
    resources: Mapping[str, Resources]
    """By entry point; static per-kernel numbers, without dynamic shared memory."""
    compile_ms: float
    """Of the compilation that made the cubin, also when it came from the cache."""
    cached: bool
    log: str


class CompileError(Exception):
    """The program does not compile. The message is one line for a record's reason; `log` is the compiler's output."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log or message


class CompileTimeout(CompileError):
    """The compiler was stopped at its time limit."""


class CompilerKilled(CompileError):
    """The system ended the compiler, as it does where memory runs out: that says nothing of the program."""


@dataclass(frozen=True)
class Job:
    """One program to compile for one architecture."""

    language: Literal["cuda", "ptx"]
    source: str
    """For `cuda` a file of `kernels_cu/` by name, or the text itself when it has a newline; for `ptx` the text."""
    arch: str
    defines: Mapping[str, int | str] = field(default_factory=dict)
    link: str = ""
    """The GPU's architecture where that is another: the code is what `arch` takes, the cubin runs on `link`."""

    @staticmethod
    def of(plan: Plan, arch: str, link: str = "") -> Job:
        """What `plan` needs compiled for `arch`, to run on `link` where that is another architecture."""
        return Job(plan.language, plan.source, arch + plan.features, plan.defines, link)

    def identity(self) -> str:
        """Equal for jobs that compile the same thing."""
        return json.dumps([self.language, self.source, self.arch, self.options(), self.link])

    def options(self) -> list[str]:
        """The defines as compiler options, in a fixed order."""
        return [f"-D{name}={value}" for name, value in sorted(self.defines.items())]

    def name(self) -> str:
        """What error messages call the program."""
        return self.source if "\n" not in self.source else f"plan.{'cu' if self.language == 'cuda' else 'ptx'}"

    def program(self) -> Program:
        """The job with its files read. Raises `CompileError` where the named one does not exist."""
        if self.language == "ptx":
            return Program("ptx", self.name(), self.source, self.arch, [], {}, self.link)
        text = self.source
        if "\n" not in text:
            path = paths.kernels_cu() / text
            if path.name != text or not path.is_file():
                raise CompileError(f"there is no kernel file '{text}' in kernels_cu")
            text = path.read_text(encoding="utf-8")
        return Program("cuda", self.name(), text, self.arch, self.options(), toolchain.headers(), self.link)


@dataclass(frozen=True)
class Program:
    """All that a compilation depends on, beside the compiler."""

    language: Literal["cuda", "ptx"]
    name: str
    text: str
    arch: str
    options: list[str]
    headers: dict[str, str]
    """Text by the name that it is included under."""
    link: str = ""
    """See `Job.link`."""

    def ptx_key(self) -> str:
        """Name of its PTX, the same on every machine: SHA-256 over all that the compiler reads and is told."""
        headers = toolchain.included(self.text, self.headers)
        parts = [self.name, self.text, self.arch, self.options, headers, toolchain.CUDA_OPTIONS]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def made_elsewhere(self) -> bytes | None:
        """Its PTX as another machine made it, where the compiler here does not know the architecture."""
        if self.language != "cuda" or not self.link or toolchain.knows(self.arch):
            return None
        return _made_elsewhere(f"{self.ptx_key()}.ptx")

    def key(self) -> str:
        """Name of the cache entry: SHA-256 over all of this and the compilers, or the PTX made by another."""
        described = asdict(self)
        if not self.link:
            del described["link"]
        ptx = self.made_elsewhere()
        made_by = toolchain.compiler_id(self.language) if ptx is None else hashlib.sha256(ptx).hexdigest()
        parts: list[Any] = [_FORMAT, described, made_by]
        if self.link and self.language == "cuda":
            parts.append(toolchain.compiler_id("ptx"))
        if self.language == "cuda":
            parts += [toolchain.CUDA_OPTIONS, str(toolchain.cuda_include())]
        else:
            parts.append(toolchain.PTX_OPTIONS)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def build(program: Program) -> Compiled:
    """Compiles one program in this process, or takes it from the cache. Raises `CompileError` and `Unsupported`."""
    check(program.arch, program.link)
    hit = lookup(program)
    if hit is not None:
        return hit
    started = time.perf_counter()
    if program.language == "ptx":
        image, log = toolchain.assemble_text(program.text, program.link or program.arch)
    elif program.link:
        image, log = _ptx(program)
        if image is not None:
            image, log = toolchain.assemble_text(image.decode(), program.link)
    else:
        image, log = compile_program(program)
    elapsed_ms = (time.perf_counter() - started) * 1e3
    path = _store(program.key(), image, log, elapsed_ms)
    if image is None:
        raise _error(log)
    return Compiled(path, toolchain.resources(log, image), elapsed_ms, False, log)


def compile_program(program: Program, to_ptx: bool = False) -> toolchain.Output:
    """Compiles CUDA C++ in this process, past the cache: to a cubin or, `to_ptx`, no further than that."""
    source = (program.name, program.text, program.headers, program.options, program.arch)
    return toolchain.compile_text(*source, to_ptx=to_ptx)


def _ptx(program: Program) -> toolchain.Output:
    """Raises `Unsupported` where neither the compiler here nor `$NNZBENCH_PTX` has it."""
    made = program.made_elsewhere()
    if made is not None:
        return made, ""
    try:
        toolchain.check_arch(program.arch)
    except Unsupported as reason:
        raise Unsupported(f"{reason}; $NNZBENCH_PTX has no PTX of {program.name} as it is now") from None
    return compile_program(program, to_ptx=True)


def check(arch: str, link: str = "") -> None:
    """Raises `Unsupported` where the installed compilers can't build for `arch`, or not for `link` from its code.

    Where there is a folder of PTX made elsewhere, each program decides whether `arch` is possible.
    """
    if link and paths.ptx():
        architecture(arch)
    else:
        toolchain.check_arch(arch)
    if link:
        toolchain.check_arch(link)
        if number(arch) > number(link) or not arch[-1].isdigit():
            raise Unsupported(f"code of {arch} does not run on {link}: only a GPU's own and older architectures' does")


def _error(log: str) -> CompileError:
    """The first line that tells of an error becomes the message."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    message = next((line for line in lines if "error" in line.lower() or "fatal" in line), lines[0] if lines else "")
    return CompileError(message[:300] or "the compiler failed without a message", log)


def folder() -> Path:
    """Of the cache's entries."""
    return paths.cache() / "cubin"


def lookup(program: Program) -> Compiled | None:
    """The cached result; raises the cached `CompileError`; None where there is none or it is damaged."""
    key = program.key()
    path = folder() / f"{key}.cubin"
    try:
        entry = json.loads((folder() / f"{key}.json").read_bytes())
        if entry["sha256"] is None:
            failure = _error(entry["log"])
        else:
            if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
                return None
            resources = {name: Resources(**values) for name, values in entry["resources"].items()}
            return Compiled(path, resources, float(entry["compile_ms"]), True, entry["log"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    raise failure


def _store(key: str, image: bytes | None, log: str, compile_ms: float) -> Path:
    """Puts a compilation into the cache; the cubin's path, which exists only where there is an image."""
    resources = {} if image is None else toolchain.resources(log, image)
    entry = {
        "sha256": None if image is None else hashlib.sha256(image).hexdigest(),
        "compile_ms": compile_ms,
        "resources": {name: asdict(value) for name, value in resources.items()},
        "log": log,
    }
    path = folder() / f"{key}.cubin"
    if image is not None:
        _put(path, image)
    _put(path.with_suffix(".json"), json.dumps(entry).encode())
    return path


def _put(path: Path, data: bytes) -> None:
    with paths.replacing(path) as partial:
        partial.write_bytes(data)
