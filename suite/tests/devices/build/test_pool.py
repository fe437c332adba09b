import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from dataclasses import asdict

import pytest

from nnzbench.core.plan import Unsupported
from nnzbench.devices.build import pool, toolchain
from nnzbench.devices.build.cache import CompileError, CompilerKilled, CompileTimeout, Job, Program, build
from nnzbench.devices.build.pool import CompilePool, compile_many, compile_one

try:
    toolchain.nvrtc_version()
except Unsupported as reason:
    pytest.skip(str(reason), allow_module_level=True)

PTX = """\
.version 6.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 p) {
    .reg .u64 %a;
    .reg .f32 %f;
    .shared .align 4 .b8 s[128];
    ld.param.u64 %a, [p];
    mov.f32 %f, 0f3F800000;
    st.shared.f32 [s], %f;
    st.global.f32 [%a], %f;
    ret;
}
"""


def slow_ptx(instructions):
    """Straight-line code that keeps the assembler busy for seconds."""
    body = "".join(
        f"ld.global.f32 %f{i}, [%a+{4 * i}];\nfma.rn.f32 %s, %f{i}, %f{i // 2}, %s;\n" for i in range(instructions)
    )
    return f"""\
.version 6.0
.target sm_70
.address_size 64
.visible .entry slow(.param .u64 p) {{
    .reg .u64 %a;
    .reg .f32 %s, %f<{instructions}>;
    ld.param.u64 %a, [p];
    mov.f32 %s, 0f00000000;
    {body}
    st.global.f32 [%a], %s;
    ret;
}}
"""


def test_ptx_is_assembled_with_its_resources():
    made = build(Job("ptx", PTX, "sm_90").program())
    used = made.resources["store"]
    assert used.shared_bytes == 128
    assert used.registers > 0
    assert used.code_bytes == toolchain.code_bytes(made.path.read_bytes())["store"]
    assert build(Job("ptx", PTX, "sm_90").program()).cached


def test_bad_ptx_names_the_line():
    with pytest.raises(CompileError, match=r"line 9; error\s*: Unknown modifier '.wrong'"):
        build(Job("ptx", PTX.replace("mov.f32", "mov.wrong"), "sm_90").program())


def ptx_jobs(texts, arch):
    return [Job("ptx", text, arch) for text in texts]


def test_many_programs_come_back_under_their_index():
    texts = [PTX.replace("store", f"store{i}") for i in range(5)]
    texts.insert(2, PTX.replace("mov.f32", "mov.wrong"))
    build(Job("ptx", texts[4], "sm_80").program())
    results = dict(compile_many(ptx_jobs(texts, "sm_80"), workers=2, timeout_s=600))
    assert sorted(results) == list(range(6))
    bad = results.pop(2)
    assert isinstance(bad, CompileError)
    assert "Unknown modifier" in str(bad)
    assert "aborted" in bad.log
    for index, made in results.items():
        assert not isinstance(made, CompileError)
        assert list(made.resources) == [f"store{index if index < 2 else index - 1}"]
        assert made.cached == (index == 4)


def test_equal_programs_are_compiled_once(cache, monkeypatch):
    handed_over: list[Program] = []
    submit = CompilePool.submit

    def counted(self, program, timeout_s):
        handed_over.append(program)
        return submit(self, program, timeout_s)

    monkeypatch.setattr(CompilePool, "submit", counted)
    bad = PTX.replace("mov.f32", "mov.wrong")
    results = dict(compile_many(ptx_jobs([PTX, bad, PTX, bad, PTX], "sm_90"), workers=2))
    assert len(handed_over) == 2
    assert len({results[index].path for index in (0, 2, 4)}) == 1
    assert isinstance(results[1], CompileError)
    assert isinstance(results[3], CompileError)


def test_a_slow_program_is_stopped_and_the_others_go_on(cache):
    results = dict(compile_many(ptx_jobs([slow_ptx(60_000), PTX], "sm_90"), workers=1, timeout_s=1.0))
    assert isinstance(results[0], CompileTimeout)
    assert "longer than 1 s" in str(results[0])
    assert not isinstance(results[1], CompileError)
    assert len(list(cache.glob("*.json"))) == 1  # a time-out is not remembered


@pytest.mark.parametrize(
    ("work", "patience", "status"),
    [("while True: pass", 1e4, -signal.SIGPROF), ("time.sleep(60)", 2, -signal.SIGALRM), ("time.sleep(0.3)", 1e4, 0)],
)
def test_a_program_is_limited_by_processors_time_and_many_times_that_by_the_clock(work, patience, status):
    code = f"""
import time
from nnzbench.devices.build import pool
pool.PATIENCE = {patience}
with pool._limited(0.1):
    {work}
time.sleep(0.2)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == status


def test_a_compiler_that_the_system_ends_says_nothing_of_its_program(cache):
    worker = pool.Worker(600.0)
    with ThreadPoolExecutor(1) as beside:
        begun = beside.submit(worker.compile, Job("ptx", slow_ptx(60_002), "sm_80").program())
        while worker._process is None:
            time.sleep(0.01)
        worker._process.kill()
        assert isinstance(begun.result(), CompilerKilled)
    worker.close()
    assert not list(cache.glob("*.json"))


def test_where_memory_runs_out_fewer_programs_are_compiled_at_once(monkeypatch):
    """As if there was memory for two: those beyond are killed until one is at work at a time."""
    enough, at_work = threading.Semaphore(2), threading.Event()

    class Hungry(pool.Worker):
        def compile(self, program):
            if not enough.acquire(blocking=False):
                return CompilerKilled("out of memory")
            with contextlib.closing(self):
                at_work.wait(60)
                enough.release()
            return None

    monkeypatch.setattr(pool, "take", Hungry)
    program = Program("ptx", "no program", "none", "sm_80", [], {})
    with CompilePool(8) as eight:
        begun = [eight.submit(program, None) for _ in range(8)]
        while eight._most > 1:
            time.sleep(0.01)
        at_work.set()
        assert [one.result(60) for one in begun] == [None] * 8


def test_a_process_that_has_nothing_to_do_serves_the_next_call_and_no_other_environment(monkeypatch):
    started: list[object] = []
    popen = subprocess.Popen

    def counted(*arguments, **options):
        started.append(arguments)
        return popen(*arguments, **options)

    monkeypatch.setattr(pool.subprocess, "Popen", counted)
    for at in range(2):
        compile_one(Job("ptx", PTX.replace("store", f"kept{at}"), "sm_80"), timeout_s=600)
        early = compile_many(ptx_jobs([PTX.replace("store", f"early{at}{i}") for i in range(2)], "sm_80"), workers=2)
        next(early)
        del early  # stopped while it is at work, and not kept
        assert not [worker for worker in pool._idle if worker._closed]
    assert 2 <= len(started) <= 5  # of six programs
    monkeypatch.setenv("NNZBENCH_OTHER", "1")
    before = len(started)
    compile_one(Job("ptx", PTX.replace("store", "elsewhere"), "sm_80"), timeout_s=600)
    assert len(started) == before + 1


def test_a_worker_that_dies_is_an_error_with_its_status(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CompileError, match="ended with status 1"):
        compile_one(Job("ptx", PTX, "sm_80"), timeout_s=600)


def test_a_worker_whose_parent_died_ends_in_silence():
    command = [sys.executable, "-m", "nnzbench.devices.build.pool"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.readline()
        worker.stdout.close()
        program = Program("ptx", "early", "no program", "sm_80", [], {})
        worker.stdin.write(json.dumps([asdict(program), None]) + "\n")
        worker.stdin.close()
        assert worker.stderr.read() == ""


def test_a_cache_that_can_not_be_written_is_no_compile_error(tmp_path, monkeypatch):
    (tmp_path / "cubin").write_text("a file where the folder should be")
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    job = Job("cuda", 'extern "C" __global__ void scale(float* c) {\n c[0] = 1.0f; }\n', "sm_80")
    with pytest.raises(OSError, match="cubin"):
        list(compile_many([job], workers=1))


def test_programs_compile_beside_what_the_caller_does(cache):
    good, again, slow, bad = ptx_jobs([PTX, PTX, slow_ptx(60003), PTX.replace("ld.param", "ld.nothing")], "sm_80")
    with CompilePool(3) as ours:
        first = ours.add(good, 60.0)
        assert first is not None
        assert ours.add(again, 60.0) is first
        late, wrong = ours.add(slow, 0.5), ours.add(bad, 60.0)
        assert late is not None
        assert wrong is not None
        assert first.result() is None
        assert isinstance(late.result(), CompileTimeout)
        assert isinstance(wrong.result(), CompileError)
    with CompilePool(1) as ours:
        assert ours.add(good, 60.0) is None  # in the cache


def test_what_compiles_beside_ends_with_its_caller(cache):
    threads = threading.active_count()
    ours = CompilePool(1)
    begun = [ours.add(job, 60.0) for job in ptx_jobs([slow_ptx(60004), slow_ptx(60005)], "sm_80")]
    ours.close()
    assert all(one is not None and one.done() for one in begun)
    assert threading.active_count() == threads
    assert not list(cache.glob("*.json"))


@pytest.mark.parametrize(("told", "most"), [("", 8), ("3", 3), ("20", 8), ("0", 8), ("many", 8)])
def test_a_pool_among_others_takes_its_share_of_the_processors(monkeypatch, told, most):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setenv(pool.COMPILERS, told)
    assert pool.processors() == most


def test_pools_that_share_the_processors_compile_no_more_than_one_program_on_each(cache, monkeypatch, tmp_path):
    monkeypatch.setenv(pool.COMPILERS, "3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5}, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, other = Job("ptx", PTX, "sm_80").program(), Job("ptx", PTX, "sm_90").program()
    with CompilePool() as ours:
        with pool.turn(threading.Event()):  # of another pool
            late = ours.submit(one, 60.0)
            assert not wait([late], 0.3).done
        assert late.result() is None
        with pool.turn(threading.Event()):
            stopped = ours.submit(other, 60.0)
            ours.close()
            with pytest.raises(CancelledError):
                stopped.result()
