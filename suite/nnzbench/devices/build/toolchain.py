"""NVRTC and nvJitLink through cuda.bindings: text in, cubin, log and what the kernel uses out. Neither needs a GPU."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nnzbench.core import paths
from nnzbench.core.architectures import architecture
from nnzbench.core.plan import Resources, Unsupported

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_LINKED = re.compile(r"Function properties for '(\w+)':\s*\ninfo\s*: used (\d+) registers")


def code_bytes(image: bytes) -> dict[str, int]:
    """Bytes of machine code per function: the size of each `.text.<name>` section. Raises ValueError if not ELF64."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("not an ELF64 file")
    try:
        (table,) = struct.unpack_from("<Q", image, 0x28)
        entry_size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size
        sections = [struct.unpack_from("<IIQQQQ", image, table + i * entry_size) for i in range(count)]
        names_at = sections[names_index][4]
    except (struct.error, IndexError, OverflowError):
        raise ValueError("the ELF section table is cut off") from None
    sizes = {}
    for name_offset, _, _, _, _, size in sections:
        start = names_at + name_offset
        name = image[start : image.index(b"\0", start)].decode()
        if name.startswith(".text."):
            sizes[name.removeprefix(".text.")] = size
    return sizes


def resources(log: str, image: bytes) -> dict[str, Resources]:
    """Registers, static shared memory, spills (stores plus loads) and code size of each entry named in `log`.

    A kernel that calls functions which were not inlined reports their spills too, and, once linked, the registers
    of the deepest call. An entry whose registers the log does not tell is left out rather than guessed.
    """
    sizes = code_bytes(image)
    linked = {name: int(count) for name, count in _LINKED.findall(log)}
    parts = _ENTRY.split(log)
    found = {}
    for entry, text in zip(parts[1::2], parts[2::2], strict=True):
        used = _USED.search(text)
        if used is None or entry not in sizes:
            continue
        shared = _SHARED.search(text[used.start() : text.find("\n", used.start())])
        found[entry] = Resources(
            registers=max(int(used[1]), linked.get(entry, 0)),
            shared_bytes=int(shared[1]) if shared else 0,
            spill_bytes=sum(int(stores) + int(loads) for stores, loads in _SPILLS.findall(text)),
            code_bytes=sizes[entry],
        )
    return found


CUDA_OPTIONS = ("-std=c++17", "--ptxas-options=-v")
"""IEEE fp32 is NVRTC's default (no flush to zero, correctly rounded division and square root), so no option says so."""
PTX_OPTIONS = ("-O3", "-verbose")
_INSTALL = "install it with: pip install 'nnzbench[compile]' (or the extra cuda12 or cuda13 of your GPU)"

Output = tuple[bytes | None, str]
"""The cubin, None when the text does not compile, and the compiler's log."""


@functools.cache
def _bindings(name: str, version: str) -> Any:
    """`cuda.bindings.<name>`, whose function `version` loads the library. Raises `Unsupported` where it is missing."""
    try:
        module = importlib.import_module(f"cuda.bindings.{name.lower()}")
        getattr(module, version)()
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise Unsupported(f"{name} is missing ({reason}): {_INSTALL}") from None
    return module


_nvrtc = partial(_bindings, "NVRTC", "nvrtcVersion")
_nvjitlink = partial(_bindings, "nvJitLink", "version")


def nvrtc_version() -> tuple[int, int]:
    """Major and minor version of NVRTC. Raises `Unsupported` where it is missing."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return int(major), int(minor)


def supported_arches() -> tuple[str, ...]:
    """What the installed NVRTC compiles for, such as `sm_70`. Raises `Unsupported` where it is missing."""
    _, arches = _nvrtc().nvrtcGetSupportedArchs()
    return tuple(f"sm_{arch}" for arch in arches)


def check_arch(arch: str) -> None:
    """Raises `Unsupported` with the reason when the installed compilers can't build for `arch` (`sm_90`, `sm_90a`)."""
    if knows(arch):
        return
    target = architecture(arch)
    base = f"sm_{target.number}"
    major, minor = nvrtc_version()
    if target.last_cuda is not None and major > target.last_cuda:
        raise Unsupported(f"CUDA {target.last_cuda + 1} dropped {base}: install the cuda{target.last_cuda} extra")
    raise Unsupported(f"NVRTC {major}.{minor} does not compile for {base}")


def knows(arch: str) -> bool:
    """Whether the installed NVRTC compiles for `arch`. Raises `Unsupported` where it is missing."""
    return f"sm_{architecture(arch).number}" in supported_arches()


@functools.cache
def compiler_id(language: str) -> str:
    """Identity of the compiler in the cache key: name, version and library size, which tells patch releases apart."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    if language == "cuda":
        name, version = "nvrtc", nvrtc_version()
    else:
        name, version = "nvJitLink", _nvjitlink().version()
    library = load_nvidia_dynamic_lib(name).abs_path
    size = Path(library).stat().st_size if library else 0
    return f"{name}-{version[0]}.{version[1]}-{size}"


@functools.cache
def cuda_include() -> Path:
    """Folder of `cuda_fp16.h`, of NVRTC's own major version where its wheel is there. Raises `Unsupported`."""
    wheel = "cuda_runtime" if nvrtc_version()[0] < 13 else f"cu{nvrtc_version()[0]}"
    nvidia = importlib.util.find_spec("nvidia")
    folders = [Path(root) / wheel / "include" for root in (nvidia and nvidia.submodule_search_locations) or ()]
    from cuda.pathfinder import find_nvidia_header_directory

    found = find_nvidia_header_directory("cudart")  # conda, CUDA_PATH, CUDA_HOME, system folders
    for folder in [*folders, *([Path(found)] if found else [])]:
        if (folder / "cuda_fp16.h").is_file():
            return folder
    raise Unsupported(f"the CUDA headers (cuda_fp16.h) are missing: set CUDA_PATH or {_INSTALL}")


def headers() -> dict[str, str]:
    """Text of every header of `kernels_cu/include`, by the name it is included under."""
    root = paths.kernels_cu() / "include"
    files = sorted(p for p in root.rglob("*") if p.suffix in (".cuh", ".h", ".hpp"))
    return {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in files}


def included(text: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Those of `headers` that the text includes, directly or through others, by name."""
    found: dict[str, str] = {}
    waiting = [text]
    while waiting:
        names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', waiting.pop(), re.MULTILINE)
        for name in names:
            if name in headers and name not in found:
                found[name] = headers[name]
                waiting.append(headers[name])
    return dict(sorted(found.items()))


def compile_text(
    name: str, text: str, includes: Mapping[str, str], defines: Sequence[str], arch: str, to_ptx: bool = False
) -> Output:
    """Compiles CUDA C++ with NVRTC. `name` is what error messages call the file; headers are handed over as text.

    `to_ptx`: stops at the PTX of that architecture, which is what comes back in place of the cubin.
    """
    nvrtc = _nvrtc()
    options = [f"-arch={f'compute_{arch[3:]}' if to_ptx else arch}", *CUDA_OPTIONS, f"-I{cuda_include()}", *defines]
    _, program = nvrtc.nvrtcCreateProgram(
        text.encode(),
        name.encode(),
        len(includes),
        [header.encode() for header in includes.values()],
        [header.encode() for header in includes],
    )
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _read(nvrtc.nvrtcGetProgramLogSize(program)[1], partial(nvrtc.nvrtcGetProgramLog, program))
        text_log = log.rstrip(b"\0 \n").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, text_log or nvrtc.nvrtcGetErrorString(status)[1].decode()
        if to_ptx:
            return _read(nvrtc.nvrtcGetPTXSize(program)[1], partial(nvrtc.nvrtcGetPTX, program)).rstrip(b"\0"), text_log
        return _read(nvrtc.nvrtcGetCUBINSize(program)[1], partial(nvrtc.nvrtcGetCUBIN, program)), text_log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(size: Any, get: Callable[[bytearray], Any]) -> bytes:
    data = bytearray(size)
    if data:
        get(data)
    return bytes(data)


def assemble_text(text: str, arch: str) -> Output:
    """Assembles PTX with nvJitLink."""
    nvjitlink = _nvjitlink()
    options = [f"-arch={arch}", *PTX_OPTIONS]
    handle = nvjitlink.create(len(options), options)
    try:
        data = text.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "plan.ptx")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = _read(nvjitlink.get_error_log_size(handle), partial(nvjitlink.get_error_log, handle))
            return None, log.rstrip(b"\0 \n").decode(errors="replace") or str(error)
        log = _read(nvjitlink.get_info_log_size(handle), partial(nvjitlink.get_info_log, handle))
        image = _read(nvjitlink.get_linked_cubin_size(handle), partial(nvjitlink.get_linked_cubin, handle))
        return image, log.rstrip(b"\0 \n").decode(errors="replace")
    finally:
        nvjitlink.destroy(handle)
