"""A page per older architecture whose code was checked on a newer GPU: what was verified, and what was not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from nnzbench.core import paths
from nnzbench.core.architectures import ARCHITECTURES, number
from nnzbench.report.tables import frame_text
from nnzbench.report.text import GAP, checks_table, document, gpu_name, markdown, recorded_on
from nnzbench.results.records import sanitise
from nnzbench.results.records.folder import BELOW, checked_arch, folders, records_file, refuse_links
from nnzbench.results.records.record import is_fault
from nnzbench.results.result_set import each, read_environment

INTRO = """\
Plans were made for {arch} ({part}: its tilings, its shared memory and other limits), compiled to the PTX of {arch}, so
that every `__CUDA_ARCH__` path is that architecture's, linked for {gpu} and run there. Each result was checked against
float64 like any other. Nothing was timed.

What this tells: that these code paths compute the right thing, on these problems. What only a real {part} can tell: any
time; what its own assembler makes of the PTX; what its memory, caches and scheduler do; and races that another
scheduler hides.
"""


class Checked(NamedTuple):
    """One experiment's rows of one architecture."""

    folder: Path
    rows: list[Any]


def write(reports: Path, gpu: str) -> list[Path]:
    """Writes `<reports>/<gpu>/as-sm_XY/README.md` for each architecture with rows below `<gpu>/*/as-sm_XY/`."""
    found: dict[str, list[Checked]] = {}
    for folder in folders(reports / gpu, f"*/{BELOW}sm_*/**"):
        path = records_file(folder)
        refuse_links(path, folder, folder.parent, folder.parent.parent)
        found.setdefault(checked_arch(folder), []).append(Checked(folder, [*each(sanitise.read(path))]))
    written = []
    for arch in sorted(found, key=number):
        path = reports / gpu / f"{BELOW}{arch}" / "README.md"
        refuse_links(path, path.parent)
        paths.write_text(path, page(arch, gpu, found[arch]))
        written.append(path)
    return written


def page(arch: str, gpu: str, checked: list[Checked]) -> str:
    """Markdown: what ran as `arch`, kernel by kernel, with counts of what was right and what was not."""
    rows = [row for one in checked for row in one.rows]
    ran = Counter(row.status for row in rows)
    part = ARCHITECTURES[arch].part if arch in ARCHITECTURES else arch
    name = gpu_name(gpu, {})
    faults = [row for row in rows if is_fault(row.status, row.kernel)]
    problems = len({(row.experiment, row.problem) for row in rows if row.status == "ok"})
    head = (
        f"{ran['ok']} candidates of {len({row.kernel for row in rows if row.status == 'ok'})} kernels on {problems} "
        f"problems were right, {len(faults)} were wrong or failed, {ran['unsupported']} rows say why they can't "
        "run there."
    )
    failed = [
        [row.kernel, f"`{row.variant}`" if row.variant else GAP, row.experiment, row.problem, row.status, row.reason]
        for row in faults
    ]
    wrong = markdown(["kernel", "variant", "experiment", "problem", "", "reason"], failed, left=6)
    return document(
        f"# Code of {arch}, checked on {name}",
        f"**{head}**",
        INTRO.format(arch=arch, part=part, gpu=name).rstrip(),
        "## Kernel by kernel",
        frame_text(checks_table(rows)),
        f"## Wrong or failed\n\n{wrong}" if failed else "",
        "## Runs",
        _runs(checked),
        f"Again: `nnzbench run EXPERIMENT --as {arch}`; the GPU tests hold every kernel to it too "
        f"(`pytest suite/tests/gpu --other-arch {arch}`).",
    )


def _runs(checked: list[Checked]) -> str:
    lines = []
    for one in checked:
        for name in dict.fromkeys(row.environment for row in one.rows):
            snapshot = read_environment(one.folder, name)
            count = sum(row.environment == name for row in one.rows)
            commit = str((snapshot.get("source") or {}).get("commit") or GAP)[:12]
            nvrtc = str((snapshot.get("software") or {}).get("nvrtc") or GAP)
            lines.append([one.rows[0].experiment, str(count), recorded_on(snapshot) or GAP, f"`{commit}`", nvrtc])
    return markdown(["experiment", "rows", "date", "commit", "NVRTC"], lines, left=1)
