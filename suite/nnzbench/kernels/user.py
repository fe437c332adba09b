"""Kernels from a user's own file: `nnzbench run --kernel ./my_kernel.py`.

What yields plans never runs in this process: they come as plain data from a process of its own, and everything that is
compiled, launched, timed or compared is done here. A file that has functions over PyTorch's tensors (`torch_kernel`)
runs here too, after it has run there.

That process tells the file's kernels, or one kernel's plans of the problem in a folder, one line per line read, so that
no more are made than are asked for. Each question has a process of its own, forked from one (`python -m
nnzbench.kernels.user`) that has imported the package and runs no file. Answers go through a socket; what the file
prints goes to standard error.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from nnzbench.core.paths import scratch
from nnzbench.core.plan import Plan, Unsupported, one_line
from nnzbench.core.plan_files import ArrayFiles, decode, encode
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import registry
from nnzbench.kernels.registry import About, KernelDefect, PlannedKernel, VendorKernel, about, kernels, register
from nnzbench.kernels.torch_calls import TorchKernel


def load(path: Path) -> tuple[str, ...]:
    """Registers the kernels of the file as `external`, whatever it says they are; their names.

    Raises `Unsupported` where the file is missing, fails, registers nothing new, or a kernel that yields no plans.
    """
    if not path.is_file():
        raise Unsupported(f"kernel file {path} does not exist")
    try:
        with scratch("nnzbench-user-") as folder:
            told = json.loads(next(_answers(path, folder)))["kernels"]
        here = _loaded_here(path) if any(one["calls"] for one in told) else {}
        for one in told:
            if one["calls"]:
                register(here[one["name"]], About("external", maths=frozenset(one["about"]["maths"])))
                continue
            said = {**one["about"], "maths": frozenset(one["about"]["maths"])}
            name, ops, dtypes = one["name"], frozenset(one["ops"]), frozenset(one["dtypes"])
            plans = partial(_plans, path, name)
            register(PlannedKernel(name, one["paper"], ops, dtypes, plans), About("external", **said))
    except (KernelDefect, ValueError, KeyError, TypeError) as error:
        raise Unsupported(f"kernel file {path} failed: {error}") from error
    return tuple(one["name"] for one in told)


def _loaded_here(path: Path) -> dict[str, registry.AnyKernel]:
    """The kernels of a file that runs in this process. Raises `Unsupported` where it then changes this package."""
    before = _functions()
    found = {name: registry.forget(name) for name in _loaded(path)}
    now = _functions()
    if changed := [name for name, one in before.items() if now.get(name) is not one]:
        raise Unsupported(f"kernel file {path} changes {changed[0]}")
    return found


def _functions() -> dict[str, object]:
    """Those of this package, methods too, by where they are found."""
    modules = {name: vars(one) for name, one in list(sys.modules.items()) if name.partition(".")[0] == "nnzbench"}
    held = {f"{name}.{of}": one for name, all_ in modules.items() for of, one in all_.items()}
    every = {**modules, **{name: vars(one) for name, one in held.items() if isinstance(one, type)}}
    return {f"{name}.{of}": one for name, all_ in every.items() for of, one in all_.items() if callable(one)}


def _plans(path: Path, name: str, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """`Kernel.plans` of the file's kernel of that name."""
    with scratch("nnzbench-user-") as folder:
        (folder / REQUEST).write_bytes(pickle.dumps((problem, operands)))
        for line in _answers(path, folder, name, arch):
            try:
                plan = decode(line, folder)
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise KernelDefect(f"{name} yields what is no plan: {error}") from error
            yield plan


class _Template:
    """The process that files' processes are forked from, so that what all of them import is imported once."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        package = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # it forks
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **one_thread, "PYTHONPATH": paths},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._lock = threading.Lock()

    def ask(self, asked: Mapping[str, object], *files: int) -> int:
        """What it answers to one request, which takes these open files along. Raises `KernelDefect` where it ended."""
        with self._lock:
            try:
                socket.send_fds(self._control, [f"{json.dumps(asked)}\n".encode()], files)
                return int(self._control.recv(32))
            except (OSError, ValueError) as error:
                raise KernelDefect("the process that starts those of kernel files has ended") from error


_templates: dict[int, _Template] = {}
"""That of this process, by its id: a process forked from it needs its own."""


def _template() -> _Template:
    found = _templates.get(os.getpid())
    if found is None or found.process.poll() is not None:
        found = _templates[os.getpid()] = _Template()
    return found


def _answers(path: Path, folder: Path, *which: str) -> Iterator[str]:
    """The lines that the file's process answers; it ends with this generator.

    Raises `Unsupported` with the file's reason, `KernelDefect` where the file fails or its process ends.
    """
    template = _template()
    ours, theirs = socket.socketpair()
    words = [os.path.abspath(path), str(folder), *which]
    with theirs:
        child = template.ask({"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}, theirs.fileno(), 2)
    ended = False
    try:
        with ours, ours.makefile(encoding="utf-8") as stream:
            while True:
                line = ""
                with suppress(BrokenPipeError, ConnectionResetError):
                    ours.sendall(b"next\n")
                    line = stream.readline()
                if not line:
                    ended = True
                    status = template.ask({"wait": child})
                    raise KernelDefect(f"kernel file {path}: its process ended with status {status} and no answer")
                if not line.strip():
                    return
                told = json.loads(line)
                if "unsupported" in told:
                    raise Unsupported(told["unsupported"])
                if "failed" in told:
                    raise KernelDefect(f"kernel file {path}: its plans failed with {told['failed']}")
                yield line
    finally:
        if not ended:
            with suppress(KernelDefect):  # with the template all that it started has ended
                template.ask({"kill": child})


REQUEST = "request"
"""The file of the problem and its operands in the request's folder."""
PLAIN = ("label", "work", "pattern", "weights_in_code", "nothing_to_tune", "rank")
"""Of `About`, what a file may say of its kernel; its role is not among them."""


def _loaded(path: Path) -> tuple[str, ...]:
    """Runs the file, which calls `nnzbench.kernel.register`; names of the kernels it added.

    Raises `Unsupported` where the file fails, registers nothing new, or a kernel that is no plans.
    """
    before = set(kernels())
    spec = importlib.util.spec_from_file_location(f"nnzbench_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Unsupported(f"kernel file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # `sys.exit(0)` in the file must not pass for a finished run
        missing = " (pip install 'nnzbench[torch]')" if getattr(error, "name", "") in ("torch", "triton") else ""
        raise Unsupported(f"kernel file {path} failed: {type(error).__name__}: {one_line(error)}{missing}") from error
    added = tuple(name for name in kernels() if name not in before)
    if not added:
        raise Unsupported(f"kernel file {path} registers no kernel: call nnzbench.kernel.register(...) in it")
    for name in added:
        if isinstance(kernels()[name], VendorKernel) and not isinstance(kernels()[name], TorchKernel):
            raise Unsupported(
                f"kernel file {path}: '{name}' makes calls of its own (`candidates`); a file's kernel yields "
                "plans, which are launched for it, or is a `torch_kernel`"
            )
    return added


def _named(path: Path) -> Iterator[str]:
    told = []
    for name in _loaded(path):
        one, said = kernels()[name], about(name)
        plain = {field: getattr(said, field) for field in PLAIN}
        sets = {field: sorted(getattr(one, field)) for field in ("ops", "dtypes")}
        of = {"name": name, "paper": one.paper, "calls": isinstance(one, TorchKernel), **sets}
        told.append({**of, "about": {**plain, "maths": sorted(said.maths)}})
    yield json.dumps({"kernels": told})


def _planned(path: Path, folder: Path, name: str, arch: str) -> Iterator[str]:
    _loaded(path)
    problem, operands = pickle.loads((folder / REQUEST).read_bytes())  # from the process that started this one
    kernel = kernels()[name]
    assert not isinstance(kernel, VendorKernel)
    files = ArrayFiles(folder)
    for plan in kernel.plans(problem, operands, arch):
        yield encode(plan, files)


def _answer(stream: TextIO, path: str, folder: str, *which: str) -> None:
    """Answers each line of the stream with one of its own, until there is nothing left to say."""
    found = _planned(Path(path), Path(folder), *which) if which else _named(Path(path))
    for _ in stream:
        try:
            answer = next(found, "")
        except Unsupported as reason:
            answer = json.dumps({"unsupported": str(reason)})
        except (Exception, SystemExit) as error:
            answer = json.dumps({"failed": f"{type(error).__name__}: {error}"})
        sys.stdout.flush()  # the process may be killed with its answer
        print(answer, file=stream, flush=True)


def main(control: socket.socket) -> None:
    """The template: starts, waits for and kills files' processes as it is asked to, until the one that asks ends."""
    kernels()
    children = set()
    while True:
        text, files, *_ = socket.recv_fds(control, 1 << 20, 2)
        while text and not text.endswith(b"\n"):
            text += control.recv(1 << 20)
        if not text:
            break
        asked = json.loads(text)
        if "words" in asked:
            child = os.fork()
            if not child:
                control.close()
                stream = socket.socket(fileno=files[0]).makefile("rw", encoding="utf-8")
                os.dup2(files[1], 2)
                os.dup2(2, 1)
                os.environ.clear()
                os.environ.update(asked["env"])
                os.chdir(asked["cwd"])
                _answer(stream, *asked["words"])
                return
            for one in files:
                os.close(one)
            children.add(child)
            answer = child
        else:
            ((how, child),) = asked.items()
            children.remove(child)
            if how == "kill":
                os.kill(child, signal.SIGKILL)
            answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        control.send(b"%d" % answer)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
