"""The GPU device's own logic over a GPU made of Python; no GPU library is imported."""

from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import FACTS, open_fake

from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.devices import DeviceLost
from nnzbench.devices.gpu import LaunchError, as_scalar, slug


def scale(backend, grid, block, args, shared_bytes):
    source, target, count, factor = args
    backend.array(target, np.float32, count)[:] = backend.array(source, np.float32, count) * factor


def plan(*launches, output="y", unpermute=None, generate_ms=0.0):
    buffers = {"x": np.arange(6, dtype=np.float32), "y": np.zeros((2, 3), np.float32)}
    return Plan("v", "cuda", "k.cu", {}, buffers, output, launches, unpermute=unpermute, generate_ms=generate_ms)


def launch(grid=(1, 1, 1), factor=2.0, shared_bytes=0, entry="scale"):
    return Launch(entry, grid, (32, 1, 1), ("x", "y", 6, factor), shared_bytes)


def test_a_plan_runs_and_reads_back_in_its_own_shape():
    prepared = open_fake({"scale": scale}).prepare(plan(launch(), generate_ms=1000.0))
    prepared.run()
    assert np.array_equal(prepared.read(), [[0, 2, 4], [6, 8, 10]])
    assert prepared.compile_ms == 12.5
    assert prepared.prepare_ms >= 1000.0  # generating is host work too
    assert prepared.resources.registers == 32


def test_the_output_is_poisoned_and_unpermuted():
    prepared = open_fake({"scale": scale}).prepare(plan(launch(), unpermute=lambda raw: raw[::-1]))
    prepared.poison()
    assert np.isnan(prepared.read()).all()
    prepared.run()
    assert np.array_equal(prepared.read(), [[6, 8, 10], [0, 2, 4]])


@pytest.mark.parametrize("language", ["cuda", "ptx"])
def test_a_plan_runs_over_copies_of_some_of_its_buffers(language):
    device = open_fake({"scale": scale})
    prepared = device.prepare(replace(plan(launch()), language=language))
    again = prepared.copied(("x",))
    prepared.arrays["x"].write(np.zeros(6, np.float32))
    again()
    assert np.array_equal(prepared.read(), [[0, 2, 4], [6, 8, 10]])
    prepared.run()
    assert not prepared.read().any()
    loads = sum(step[0] == "load" for step in device.backend.log)
    assert loads == (2 if language == "ptx" else 1)  # a program that holds weights is one of them


def test_integer_outputs_are_poisoned_with_the_largest_value():
    device = open_fake()
    array = device.empty((3,), np.int32)
    array.poison()
    assert (array.read() == np.iinfo(np.int32).max).all()


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 0, 1), (4, 1, 0)])
def test_an_empty_grid_is_not_launched(grid):
    device = open_fake({"scale": scale})
    prepared = device.prepare(plan(launch(grid)))
    prepared.poison()
    prepared.run()
    assert not [step for step in device.backend.log if step[0] == "launch"]
    assert np.isnan(prepared.read()).all()


def test_arguments_take_their_c_types():
    seen = []
    device = open_fake({"k": lambda backend, grid, block, args, shared: seen.append(args)})
    args = ("x", 3, 0.5, np.int64(2**40), np.float16(1.5))
    device.prepare(plan(Launch("k", (1, 1, 1), (1, 1, 1), args))).run()
    assert [arg.dtype.str for arg in seen[0]] == ["<u8", "<i4", "<f4", "<i8", "<f2"]
    assert seen[0][0] % 256 == 0
    assert list(seen[0][1:]) == list(args[1:])


def test_an_integer_beyond_32_bits_is_refused_rather_than_cut():
    with pytest.raises(ValueError, match="does not fit in 32 bits"):
        as_scalar(2**31)
    assert as_scalar(-(2**31)) == -(2**31)


def test_buffers_of_no_elements_are_allocated_and_read_back():
    device = open_fake()
    array = device.upload(np.zeros((0, 5), np.float32))
    assert array.pointer
    assert array.read().shape == (0, 5)


def functions(device):
    return [step[1:] for step in device.backend.log if step[0] == "function" and step[1] != "delay"]


def test_large_shared_memory_is_opted_into_counting_the_static_part():
    device = open_fake({"scale": scale})
    for shared_bytes in (47 * 1024, 47 * 1024 + 4, 226 * 1024):
        device.prepare(plan(launch(shared_bytes=shared_bytes)))
    sizes = [
        47 * 1024,
        48 * 1024 + 16,
        226 * 1024,
    ]  # a limit of 48 KiB or less for the dynamic part would count as none
    assert [(size, limit) for _, size, limit in functions(device)] == [
        (sizes[0], 0),
        *((one, one) for one in sizes[1:]),
    ]


def test_an_entry_launched_with_two_sizes_is_opted_in_once_with_the_larger():
    device = open_fake({"scale": scale})
    device.prepare(plan(launch(shared_bytes=60_000), launch(shared_bytes=100_000)))
    assert functions(device) == [("scale", 60_000, 0), ("scale", 100_000, 100_000)]


def test_more_shared_memory_than_the_gpu_has_is_unsupported():
    with pytest.raises(Unsupported, match=f"this GPU has {FACTS.shared_optin_bytes}"):
        open_fake({"scale": scale}).prepare(plan(launch(shared_bytes=227 * 1024)))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("CUDA_ERROR_INVALID_VALUE: invalid argument", LaunchError),
        ("too many resources requested for launch", LaunchError),
        ("cudaErrorIllegalAddress: an illegal memory access was encountered", DeviceLost),
        ("cuCtxSynchronize failed: misaligned address", DeviceLost),
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", DeviceLost),
    ],
)
@pytest.mark.parametrize("where", ["launch", "download"])
def test_driver_errors_surface_as_ours_and_tell_a_lost_device(message, error, where):
    device = open_fake({"scale": scale})
    prepared = device.prepare(plan(launch()))
    device.backend.fail_at, device.backend.message = where, message
    with pytest.raises(error, match=message.split(": ")[-1]):
        (prepared.run if where == "launch" else prepared.read)()


def test_errors_while_preparing_are_translated_too():
    device = open_fake({"scale": scale})
    for where in ("allocate", "upload", "load", "function"):
        device.backend.fail_at, device.backend.message = where, "out of memory"
        with pytest.raises(LaunchError, match="out of memory"):
            device.prepare(plan(launch()))


def test_the_run_alone_holds_the_memory_and_closing_frees_it():
    device = open_fake({"scale": scale})
    prepared = device.prepare(plan(launch()))
    run = device.prepare(plan(launch())).run
    run()  # would write to freed memory
    del run
    assert device.backend.memory
    prepared.close()
    prepared.close()
    assert not device.backend.memory


def test_a_library_is_opened_once_and_closed_with_the_device():
    class Library:
        closed = 0

        def close(self):
            self.closed += 1

    device = open_fake()
    assert (device.name, device.gpu, device.arch) == ("cupy", "nvidia-h200", "sm_90")
    first = device.library("blas", Library)
    assert device.library("blas", Library) is first
    device.timer.cold_us(lambda: None, 1)
    device.close()
    assert first.closed == 1
    assert device.backend.log[-1] == ("close",)
    assert not device.backend.memory


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
    ],
)
def test_slugs_are_folder_names(name, folder):
    assert slug(name) == folder


def test_a_run_that_fails_in_capture_is_not_capturable():
    device = open_fake({"scale": scale})
    prepared = device.prepare(plan(launch()))
    assert device.capturable(prepared.run)

    def refuses():
        if device.backend.capturing:
            raise LaunchError("operation not permitted when stream is capturing")

    assert not device.capturable(refuses)
