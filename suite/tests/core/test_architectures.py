"""The table of architectures against the assembler, the data sheets, and the code that must ask it."""

import functools
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

import nnzbench
from nnzbench.core import architectures
from nnzbench.core.architectures import (
    ARCHITECTURES,
    CAPABILITIES,
    Part,
    architecture,
    block_shared_bytes,
    number,
    sm_count,
)
from nnzbench.core.plan import Unsupported
from nnzbench.core.tiles import occupancy
from nnzbench.devices.build import toolchain
from nnzbench.kernels.registry import VendorKernel, kernels
from nnzbench.kernels.samples import sample_plans

FORMS = [name + suffix for name, one in ARCHITECTURES.items() for suffix in ("", *one.suffixes)]

SUMS = "{f0, f1, f2, f3}"
INSTRUCTIONS = {
    "mma_f16_k4": "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 "
    "{f0, f1, f2, f3, f4, f5, f6, f7}, {r0, r1}, {r2, r3}, {f0, f1, f2, f3, f4, f5, f6, f7};",
    "mma_f16_k8": f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {SUMS}, {{r0, r1}}, {{r2}}, {SUMS};",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0, r1, r2, r3}, [tile];",
    "mma_f16_k16": f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {SUMS}, {{r0, r1, r2, r3}}, {{r4, r5}}, {SUMS};",
    "mma_bf16": f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {SUMS}, {{r0, r1, r2, r3}}, {{r4, r5}}, {SUMS};",
    "mma_tf32": f"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {SUMS}, {{r0, r1, r2, r3}}, {{r4, r5}}, {SUMS};",
    "mma_sparse": "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    f"{SUMS}, {{r0, r1}}, {{r4, r5}}, {SUMS}, r2, 0x0;",
    "cp_async": "cp.async.ca.shared.global [tile], [at], 16;",
    "mbarrier": "mbarrier.init.shared.b64 [tile], 1;",
    "mma_fp8": f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {SUMS}, {{r0, r1, r2, r3}}, {{r4, r5}}, {SUMS};",
    "try_wait": "mbarrier.try_wait.shared.b64 q, [tile], at;",
    "bulk_copy": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [at], 16, [tile];",
    "tensor_map": "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[tile], [at, {r0, r1}], [tile];",
    "dependent_launch": "griddepcontrol.launch_dependents; griddepcontrol.wait;",
    "clusters": "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    "vector_atomics": f"atom.global.add.v4.f32 {SUMS}, [at], {SUMS};",
    "gather4": "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
    "[tile], [at, {r0, r1, r2, r3, r4}], [tile];",
    "fma_f32x2": "fma.rn.f32x2 at, at, at, at;",
    "wgmma": "wgmma.fence.sync.aligned;",
    "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 240;",
    "tcgen05": "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [tile], 32;",
    "block_scaled_mma": "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    f".f32.e4m3.e4m3.f32.ue8m0 {SUMS}, {{r0, r1, r2, r3}}, {{r4, r5}}, {SUMS}, r0, {{0, 0}}, r1, {{0, 0}};",
}


def module(arch, *capabilities):
    """A kernel of one instruction each, in a PTX version that knows all of them."""
    zeros = [f"mov.u32 r{i}, 0;" for i in range(6)] + [f"mov.f32 f{i}, 0f00000000;" for i in range(8)]
    lines = [
        f".version 8.8\n.target {arch}\n.address_size 64\n.visible .entry k(.param .u64 p) {{",
        ".reg .b32 r<6>; .reg .f32 f<8>; .reg .b64 at; .reg .pred q; .shared .align 128 .b8 tile[1024];",
        "ld.param.u64 at, [p];",
        *zeros,
        *(INSTRUCTIONS[capability] for capability in capabilities),
        "ret; }",
        "",
    ]
    return "\n".join(lines)


@functools.cache
def assembler():
    """Version of nvJitLink; skips where there is none that knows PTX 8.8."""
    try:
        toolchain.assemble_text("", "sm_80")
        name, version, _ = toolchain.compiler_id("ptx").split("-")
    except Unsupported as error:
        pytest.skip(str(error))
    major, minor = (int(part) for part in version.split("."))
    if (major, minor) < (12, 9):
        pytest.skip(f"{name} {version} does not know PTX 8.8")
    return major, minor


def test_every_capability_has_its_instruction():
    assert set(INSTRUCTIONS) == set(CAPABILITIES)
    assert all(one.capabilities | one.accelerated <= set(CAPABILITIES) for one in ARCHITECTURES.values())


@pytest.mark.parametrize("arch", FORMS)
def test_the_assembler_takes_what_the_table_says(arch):
    major, _ = assembler()
    target = architecture(arch)
    if target.last_cuda is not None and major > target.last_cuda:
        pytest.skip(f"CUDA {major} does not assemble for {arch}")
    image, log = toolchain.assemble_text(module(arch, *sorted(target.capabilities)), arch)
    assert image is not None, log
    for capability in CAPABILITIES.keys() - target.capabilities:
        image, log = toolchain.assemble_text(module(arch, capability), arch)
        assert image is None, capability
        assert "not supported" in log or "requires" in log, log


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_ptx_version_is_the_oldest_that_knows_the_target(name):
    major, _ = assembler()
    target = ARCHITECTURES[name]
    if target.last_cuda is not None and major > target.last_cuda:
        pytest.skip(f"CUDA {major} does not assemble for {name}")
    body = "\n.visible .entry k() { ret; }\n"
    assert toolchain.assemble_text("\n".join(target.ptx_header()) + body, name)[0] is not None
    versions = ["6.0", "6.1", "6.3", "7.0", "7.1", "7.4", "7.7", "7.8", "8.5", "8.6", "8.7", "8.8"]
    older = [version for version in versions if float(version) < float(target.ptx)]
    for version in older[-1:]:
        text = "\n".join([f".version {version}", *target.ptx_header()[1:]]) + body
        assert toolchain.assemble_text(text, name)[0] is None


def test_the_table_is_consistent():
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES, key=number)
    for name, one in ARCHITECTURES.items():
        assert one.name == name
        # A block gets what the system leaves of an SM, and an SM's warps are split evenly over its schedulers.
        assert 48 * 1024 < block_shared_bytes(name) == one.shared_bytes - one.reserved_bytes
        assert one.warps % one.partitions == 0
        assert bool(one.accelerated) == bool(one.suffixes)


def test_forms_are_understood_in_one_place():
    assert (number("sm_90a"), number("sm_120f"), number("sm_52")) == (90, 120, 52)
    assert architecture("sm_100f").name == "sm_100f"
    assert architecture("sm_100f").number == 100
    assert architecture("sm_90a").has("wgmma")
    assert not architecture("sm_90").has("wgmma")
    assert architecture("sm_90a").ptx_header()[1] == ".target sm_90"
    assert block_shared_bytes("sm_90a") == block_shared_bytes("sm_90") == 227 * 1024
    part = pickle.loads(pickle.dumps(Part("sm_89", 58)))
    assert (part, sm_count(part), sm_count("sm_89")) == ("sm_89", 58, 128)
    for arch, reason in (
        ("sm_999", "sm_999 is not in the table of architectures: sm_70, "),
        ("sm_52", "sm_52 is not in the table"),
        ("sm_80a", "sm_80 has no form sm_80a"),
        ("sm_90f", "sm_90 has no form sm_90f"),
        ("compute_90", "'compute_90' is not an architecture such as"),
        ("sm_90af", "'sm_90af' is not an architecture"),
    ):
        for ask in (architecture, sm_count, block_shared_bytes, lambda arch: occupancy(arch, 32, 0, 128)):
            with pytest.raises(Unsupported, match=reason):
                ask(arch)
    with pytest.raises(Unsupported, match="sm_999 is not in the table"):
        toolchain.check_arch("sm_999")
    with pytest.raises(ValueError, match="'tensor' is not a capability"):
        architecture("sm_90").has("tensor")


def first_plans(kernel, arch):
    """Of the first problem that the kernel has a plan for."""
    try:
        return [next(sample_plans(kernel, arch))]
    except Unsupported:
        return []


def test_a_new_architecture_is_one_entry_of_the_table(monkeypatch):
    ours = [one for one in kernels().values() if not isinstance(one, VendorKernel)]
    assert not any(first_plans(one, "sm_133") for one in ours if one.name in ("ring", "sparsert", "direct_conv"))
    new = replace(ARCHITECTURES["sm_100"], name="sm_133", part="made up", sms=7, ptx="9.9")
    monkeypatch.setattr(architectures, "ARCHITECTURES", {**ARCHITECTURES, "sm_133": new})
    architecture.cache_clear()
    try:
        for one in ours:
            some = first_plans(one, "sm_133")
            assert len(some) == len(first_plans(one, "sm_100")), one.name
            generated = [plan.source for plan in some if plan.language == "ptx"]
            assert all(text.startswith(".version 9.9\n.target sm_133\n") for text in generated), one.name
        assert occupancy("sm_133f", 32, 0, 256) == occupancy("sm_100", 32, 0, 256)
    finally:
        architecture.cache_clear()


def test_no_architecture_is_named_or_compared_elsewhere():
    root = Path(nnzbench.__file__).parent
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    found = {(name, word) for name, text in texts.items() for word in re.findall("""["'](sm_\\d*[af]*|af)["']""", text)}
    here = {entry for entry in found if Path(entry[0]).name == "architectures.py"}
    assert len(here) > 10
    # The processor stands in for one architecture, which it must name.
    assert found - here == {("devices/cpu_device.py", "sm_80")}
    assert "sm_80" in ARCHITECTURES
