"""The one table of GPUs: names that find a line of it, and rates that are a run's or the data sheet's."""

import math
import re
from dataclasses import replace

import pytest

from nnzbench.core.architectures import ARCHITECTURES, sm_count
from nnzbench.core.gpus import Peaks, data_sheets, generation, gpu, gpus, median_peaks, peaks_of, sheet_peaks
from nnzbench.core.plan import Unsupported


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("tesla-t4", "tesla-t4"),
        ("T4", "tesla-t4"),
        ("Tesla T4", "tesla-t4"),
        ("rtx 4090", "nvidia-geforce-rtx-4090"),
        ("RTX4090", "nvidia-geforce-rtx-4090"),
        ("RTX_4090", "nvidia-geforce-rtx-4090"),
        ("geforcertx4090", "nvidia-geforce-rtx-4090"),
        ("2080ti", "nvidia-geforce-rtx-2080-ti"),
        ("rtx 2080 Ti", "nvidia-geforce-rtx-2080-ti"),
        ("v100", "tesla-v100-sxm2-16gb"),
        ("h100", "nvidia-h100-80gb-hbm3"),
        ("H100-PCIe", "nvidia-h100-pcie"),
        ("a100", "nvidia-a100-sxm4-40gb"),
        ("a100-80", "nvidia-a100-sxm4-80gb"),
    ],
)
def test_a_gpu_is_found_by_slug_or_by_words_that_people_write(name, slug):
    assert gpu(name) is gpus()[slug]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("h20", ["nvidia-h200"]),
        ("l40s", ["nvidia-l4"]),
        ("a10g", ["nvidia-a100-sxm4-40gb"]),
        ("gh200", ["nvidia-h200"]),
        ("gb200", ["nvidia-b200", "nvidia-gb10"]),
        ("rtx 3090", ["nvidia-geforce-rtx-5090", "nvidia-geforce-rtx-4090"]),
        ("4080", ["nvidia-geforce-rtx-5080", "nvidia-geforce-rtx-4090"]),
    ],
)
def test_another_name_is_refused_with_the_nearest_there_are(name, meant):
    with pytest.raises(Unsupported, match=r"^no GPU '.*' is in datasets/gpus\.csv: did you mean .*\?$") as refused:
        gpu(name)
    told = re.findall(r"[\w-]+-[\w-]+", str(refused.value).partition("mean")[2])
    assert len(told) <= 3
    assert set(meant) <= set(told)


def test_a_name_without_a_likeness_is_refused_without_one():
    for name in ("cpu", ""):
        with pytest.raises(Unsupported, match=r"its first column has the names$"):
            gpu(name)


def test_best_known_parts_are_those_of_the_data_sheets():
    assert {one.arch for one in gpus().values()} >= {"sm_70", "sm_75", "sm_80", "sm_89", "sm_90"}
    for arch in {one.arch for one in gpus().values()}:
        parts = [one for one in gpus().values() if one.arch == arch and ARCHITECTURES[arch].part in one.name]
        assert parts[0].sms == sm_count(arch)  # a PCIe card below it may have fewer


def test_rates_of_a_data_sheet_are_by_arithmetic_and_none_where_it_has_none():
    geforce, server, oldest = gpu("4090"), gpu("v100"), data_sheets()["nvidia-geforce-gtx-titan-x"]
    assert geforce.rate("f16_sums") == 2 * geforce.rate("f16")  # GeForce halves the rate of fp32 sums
    assert server.rate("f16_sums") == server.rate("f16") == server.rate("bf16") == 125
    assert (server.rate("tf32"), oldest.rate("f16"), oldest.peaks.f16_tflops) == (0, 0, None)
    assert oldest.slug not in gpus()  # no kernel here is made for it
    assert math.isnan(sheet_peaks("no-such-gpu").tflops("f32"))
    assert (generation(oldest.slug), generation("no-such-gpu")) == (52, math.inf)


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf, "12", None])
def test_a_rate_that_is_no_number_above_zero_is_none(rate):
    assert peaks_of({"peaks": {"copy_gbs": rate, "l2_gbs": 7000}}) == Peaks(l2_gbs=7000)


def test_several_runs_peaks_are_their_medians():
    found = median_peaks([Peaks(copy_gbs=3.0, sms=2), Peaks(copy_gbs=1.0), Peaks(copy_gbs=2.0, l2_gbs=7.0)])
    assert (found.copy_gbs, found.l2_gbs, found.sms, found.fp32_tflops) == (2.0, 7.0, 2, None)


def test_hot_operands_that_fit_come_from_l2_and_all_others_from_memory():
    peaks = Peaks(copy_gbs=1000.0, l2_gbs=5000.0, l2_bytes=50)
    asked = [(50, "hot"), (51, "hot"), (50, "cold"), (50, "stream")]
    assert [peaks.bandwidth(*one) for one in asked] == [5000.0, 1000.0, 1000.0, 1000.0]
    assert Peaks(copy_gbs=1000.0).bandwidth(1, "hot") == 1000.0
    assert math.isnan(Peaks(l2_gbs=1.0).bandwidth(1, "cold"))


def test_what_a_chip_does_in_a_nanosecond_and_keeps_up_within_its_power():
    one = gpu("h200")
    assert one.peaks.l2_bytes == one.l2_mb * 2**20
    assert one.issue == pytest.approx(one.sms * 128 * one.boost_mhz / 1e3)
    assert one.loads == pytest.approx(one.sms * one.architecture.l1_clock_bytes * one.boost_mhz / 1e3)
    watts = {0.44: 0.7, 0.88: 0.8, 0.22: 0.6, 0.44 * 2**5: 1.0, 0.44 / 2**5: 0.3}
    told = {each: replace(one, power_w=each * one.rate("f16")).sustained for each in watts}
    assert told == pytest.approx(watts)
