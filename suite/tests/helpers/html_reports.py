"""A reports folder of two GPUs, and its page taken apart into words and data; import the fixtures to have them."""

import base64
import dataclasses
import html as stdlib_html
import json
import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import fake_records
import pytest

from nnzbench.results.records.record import Record, RecordError
from nnzbench.site.build import draw_index

H200, OTHER = "nvidia-h200", "nvidia-l4"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
SNAPSHOT = {
    "gpu": {"name": "NVIDIA H200", "driver": "580.95"},
    "recorded_at": "2026-01-02T03:04:05",
    "peaks": {"copy_gbs": 3987.928561, "l2_gbs": 8862.87, "fp32_tflops": 63.975, "floor_hot_us": 0.51},
}


def on(gpu: str, rows: list[Record], **changes: str) -> list[Record]:
    return [dataclasses.replace(row, gpu=gpu, **changes) for row in rows]


def put(reports: Path, gpu: str = H200, rows: list[Record] | None = None, name: str = "NVIDIA H200") -> Path:
    rows = fake_records.table1() if rows is None else rows
    environment = {**SNAPSHOT, "gpu": {"name": name, "driver": "580.95"}}
    return fake_records.write(reports / gpu / rows[0].experiment, on(gpu, rows), environment)


def rendered(reports: Path) -> str:
    return draw_index(reports).read_text(encoding="utf-8")


def opened(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The page in headless Chromium, once its scripts have run: its elements on standard output. Skips without one."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium to open the page with")
    usual = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'profile'}")
    command = [browser, *usual, "--virtual-time-budget=20000", *options, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)


def data_of(text: str) -> dict:
    encoded = re.search(r'<script type="application/octet-stream" id="data">(.*?)</script>', text)[1]
    return json.loads(zlib.decompress(base64.b64decode(encoded)))


def visible(text: str) -> str:
    """The page's text without scripts and styles."""
    bare = re.sub(r"(?s)<(script|style).*?</\1>", "", text)
    return " ".join(stdlib_html.unescape(re.sub(r"<[^>]*>", " ", bare)).split())


@pytest.fixture(name="reports", scope="module")
def reports_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GPUs, one of which is slower with sparse kernels."""
    folder = tmp_path_factory.mktemp("reports")
    put(folder)
    put(folder, OTHER, fake_records.table1(seed=1, scale=4.0), "NVIDIA L4")
    return folder


@pytest.fixture(name="page", scope="module")
def page_of_reports(reports: Path) -> str:
    return rendered(reports)


@pytest.fixture(name="data", scope="module")
def data_of_page(page: str) -> dict:
    return data_of(page)


def numbered(at: int) -> tuple[int, int]:
    """The number and the process; here, as other processes can't import a test's own module."""
    if at < 0:
        raise RecordError(f"{at} is below zero")
    return at, os.getpid()
