"""From a plan's source to an executable, through a cache that concurrent processes share."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from nnzbench.core import paths
from nnzbench.core.plan import Plan, Unsupported
from nnzbench.devices.build import toolchain
from nnzbench.devices.build.cache import CompileError

_CXX = Path(__file__).resolve().parent / "cxx"
_COMMON = ("-std=c++20", "-pthread", "-fno-strict-aliasing", "-ffp-contract=off", "-w")


@dataclass(frozen=True)
class Build:
    """How programs of one kind are compiled and run."""

    flags: tuple[str, ...]
    instrument: tuple[str, ...] = ()
    """Further flags for the kernel alone: the runtime itself is not instrumented."""
    max_workers: int = 8
    """OS threads that blocks are dealt out to."""


BUILDS = {
    "plain": Build(("-O2",)),
    "asan": Build(
        ("-O1", "-g1", "-DNNZ_CPU_ASAN"),
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
        max_workers=1,  # static shared arrays are plain static variables there, which AddressSanitizer guards
    ),
    "ubsan": Build(("-O1", "-g1"), ("-fsanitize=undefined", "-fno-sanitize-recover=all")),
    "tsan": Build(("-O1", "-g1", "-DNNZ_CPU_TSAN"), ("-fsanitize=thread",), max_workers=2),
}


@dataclass(frozen=True)
class Program:
    """A built executable and the milliseconds its compilation took when it was made."""

    path: Path
    compile_ms: float


def compiler() -> tuple[str, ...]:
    """The C++ compiler's command: `$CXX`, else the first of g++, clang++, c++. Raises `Unsupported` where none is."""
    chosen = os.environ.get("CXX")
    if chosen:
        command = tuple(shlex.split(chosen))
        if not command or shutil.which(command[0]) is None:
            raise Unsupported(f"the cpu device needs a C++20 compiler, and $CXX names '{chosen}', which is not found")
        return command
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return (name,)
    raise Unsupported(
        "the cpu device needs a C++20 compiler: install g++ (Debian, Ubuntu: apt install g++) or set $CXX"
    )


@functools.lru_cache(maxsize=8)
def _identity(command: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The compiler's version text, and the flags for this processor's instructions and a fast linker where it has them.

    Without the first `fmaf` is a library call, and kernels run several times slower; gold links in a third of the time.
    """
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    read = ("-E", "-x", "c++", os.devnull)
    found = []
    for flags, rest in ((("-march=native", "-mcpu=native"), read), (("-fuse-ld=gold",), ("-Wl,--version",))):
        for flag in flags:
            if subprocess.run([*command, flag, *rest], capture_output=True, check=False).returncode == 0:
                found.append(flag)
                break
    return version, tuple(found)


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """What `-march=native` depends on: a cache may be shared by machines with other processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def program(plan: Plan, build: str) -> Program:
    """The executable that runs `plan`'s launches in this build.

    Raises `CompileError` with the compiler's log, `Unsupported` without a compiler, a sanitizer's library, or for a
    plan in PTX that comes without equivalent CUDA C++.
    """
    command = compiler()
    name, text = _source(plan)
    defines = [f"-D{key}={value}" for key, value in sorted(plan.defines.items())]
    wrapper = _wrap(name, text, [launch.entry for launch in plan.launches])
    includes = [f"-I{_CXX}", f"-I{paths.kernels_cu() / 'include'}", f"-I{paths.kernels_cu()}"]
    headers = toolchain.included(text, toolchain.headers())
    objects = [_object(command, build, "runtime.cpp"), _object(command, "plain", "program.cpp")]
    flags = [*_flags(command, build), *BUILDS[build].instrument]
    language = _precompiled(command, flags)
    sources = ["-x", "c++", "-", "-x", "none", *(str(made.path) for made in objects)]
    return _cached(
        [*command, *flags, *language, *defines, *includes, *sources],
        key=[*flags, *defines, wrapper, *_runtime(), *(f"{name}\n{header}" for name, header in headers.items())],
        command=command,
        text=wrapper,
    )


def _source(plan: Plan) -> tuple[str, str]:
    """The name that messages give the source, and its text."""
    if plan.language == "ptx":
        if not plan.cpu_source:
            raise Unsupported(
                f"{plan.variant} is PTX and comes without the equivalent CUDA C++ that the cpu device runs"
            )
        return "generated.cu", plan.cpu_source
    if "\n" in plan.source:
        return "generated.cu", plan.source
    path = paths.kernels_cu() / plan.source
    if path.name != plan.source or not path.is_file():
        raise CompileError(f"there is no kernel file '{plan.source}' in kernels_cu")
    return plan.source, path.read_text()


def _wrap(name: str, text: str, entries: Iterable[str]) -> str:
    """The kernel between the language it needs and the table of its entries.

    The unnamed namespace makes templates' static shared arrays local, which AddressSanitizer needs to guard them.
    """
    table = "\n".join(f'    nnz_cpu::entry<&::{entry}>("{entry}"),' for entry in dict.fromkeys(entries))
    return (
        f'#include "cuda_on_cpu.h"\nnamespace {{\n#line 1 "{name}"\n{text}\n}}\n#line 1 "launches"\n'
        f"const nnz_cpu::Entry nnz_cpu::entries[] = {{\n{table}\n    {{nullptr, nullptr, nullptr}},\n}};\n"
    )


def _flags(command: tuple[str, ...], build: str) -> list[str]:
    return [*_COMMON, *BUILDS[build].flags, *_identity(command)[1], f"-ffile-prefix-map={_CXX}/="]


def _object(command: tuple[str, ...], build: str, unit: str) -> Program:
    """A part of the runtime; only the scheduler differs between builds."""
    flags = _flags(command, build)
    return _cached([*command, *flags, "-c", str(_CXX / unit)], key=[*flags, unit, *_runtime()], command=command)


def _precompiled(command: tuple[str, ...], flags: list[str]) -> list[str]:
    """Flags that bring in `cuda_on_cpu.h`, with which every program begins, as g++ read it once: reading it takes
    longer than a small kernel does. Where that does not fit (a define named like a word of it), g++ reads the text.
    """
    if "Free Software Foundation" not in _identity(command)[0]:
        return []
    header = _CXX / "cuda_on_cpu.h"
    arguments = [*command, *flags, "-x", "c++-header", str(header)]
    made = _cached(arguments, key=[*flags, header.name, *_runtime()], command=command, ending=".gch").path
    plain = made.with_suffix("")
    if not plain.exists():
        paths.write_text(plain, f'#include "{header.name}"\n')
    return ["-include", str(plain)]


def _runtime() -> list[str]:
    return [_read(path, path.stat().st_mtime_ns) for path in sorted(_CXX.iterdir()) if path.is_file()]


@functools.lru_cache(maxsize=256)
def _read(path: Path, _changed: int) -> str:
    return path.read_text()


def programs() -> Path:
    """Where executables are kept, by a digest of all that they were made from."""
    return paths.cache() / "cpu"


def _cached(
    arguments: list[str], key: Iterable[str], command: tuple[str, ...], text: str = "", ending: str = ""
) -> Program:
    """Runs the compiler, `text` its input, unless it has before and what it made is whole.

    An entry appears by one rename, behind a note of its digest and the time it took. Raises `OSError` where the cache
    can't be written.
    """
    digest = hashlib.sha256()
    for part in (*command, _identity(command)[0], _processor(), *key):
        digest.update(part.encode() + b"\0")
    folder = programs()
    made = folder / f"{digest.hexdigest()[:32]}{ending}"
    note = made.with_suffix(".json")
    with paths.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(made.with_suffix(".lock")):
            compile_ms = _whole(made, note)
            if compile_ms is None:
                started = time.perf_counter()
                with paths.replacing(made) as partial:
                    call = [*arguments, "-o", str(partial)]
                    done = subprocess.run(call, input=text, capture_output=True, text=True, check=False)
                    if done.returncode != 0:
                        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                            if os.strerror(number) in done.stderr:
                                raise OSError(number, os.strerror(number), str(folder))
                        raise _compile_error(command[0], done.stderr)
                    compile_ms = 1e3 * (time.perf_counter() - started)
                    paths.write_text(note, json.dumps({"compile_ms": compile_ms, "sha256": _digest(partial)}))
    return Program(made, compile_ms)


def _whole(made: Path, note: Path) -> float | None:
    """What an entry took to make; None where there is none, or it is damaged."""
    try:
        told = json.loads(note.read_bytes())
        stat = made.stat()
        return float(told["compile_ms"]) if _known(made, stat.st_mtime_ns, stat.st_size) == told["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@functools.lru_cache(maxsize=4096)
def _known(made: Path, _changed: int, _size: int) -> str:
    return _digest(made)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile_error(name: str, log: str) -> Exception:
    lines = log.splitlines()
    library = next((line for line in lines if "cannot find" in line and "san" in line), None)
    if library is not None:
        return Unsupported(
            f"{name} comes without its sanitizer library ({library.strip()}): install g++ with libasan, libtsan"
        )
    first = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
    return CompileError(f"{name} does not compile the kernel: {first.strip()}", log)
