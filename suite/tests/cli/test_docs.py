"""README and docs against the code: commands parse, examples run, tables and links are true."""

import contextlib
import dataclasses
import fnmatch
import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from fake_records import record

import nnzbench
from nnzbench.bench import timing
from nnzbench.cli import main
from nnzbench.core.architectures import compiled_architectures
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems import sources
from nnzbench.data.problems.check import TOLERANCE
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.gpu_timer import LEAST_FLUSH_BYTES
from nnzbench.kernels import registry as kernel
from nnzbench.kernels.registry import about, kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.folder import export
from nnzbench.results.records.record import COLUMNS, append, read_records
from nnzbench.site.index.headlines import HEADLINE

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (ROOT, ROOT / "reports", ROOT / "datasets", ROOT / "runners")
PAGES = [*(folder / "README.md" for folder in FOLDERS), ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
KERNELS = ROOT / "docs" / "kernels.md"
pytestmark = pytest.mark.usefixtures("cache_dir")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return [
        re.sub("(?m)^ +(?=\\S)", "", body) if indent else body
        for indent, body in re.findall(rf"(?ms)^( *)```{language}\n(.*?)^ *```", text_of(page))
    ]


def command_lines(start: str) -> list[tuple[str, list[str]]]:
    """(page, words) of every command in a shell block or in inline code that starts with that word."""
    found = []
    for page in PAGES:
        lines = [line for body in blocks(page, "sh") for line in body.splitlines()]
        lines += re.findall(r"`([^`\n]+)`", re.sub(r"(?s)```.*?```", "", text_of(page)))
        for line in lines:
            if line.split(maxsplit=1)[:1] == [start]:
                found.append((page.name, shlex.split(line, comments=True)))
    return found


def parse(words: list[str]) -> tuple[click.Command, dict]:
    """Resolves the subcommand, parses its options and converts them; a file that must exist is any file."""
    command, context = main, click.Context(main, info_name="nnzbench")
    while isinstance(command, click.Group):
        name, *words = words or [""]
        inner = command.get_command(context, name)
        assert inner is not None, f"{command.name} has no subcommand '{name}'"
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    values, rest, _ = command.make_parser(context).parse_args(words)
    assert not rest
    for parameter in command.params:
        if not isinstance(parameter.type, click.Path):
            values[parameter.name] = parameter.process_value(context, values.get(parameter.name))
    return command, values


@pytest.mark.parametrize(("page", "words"), command_lines("nnzbench"), ids=lambda value: " ".join(value))
def test_every_nnzbench_command_parses_and_names_experiments_that_exist(page, words):
    if len(words) < 3:  # a mention of the command, not a call
        assert all(main.get_command(click.Context(main), name) for name in words[1:])
        return
    command, values = parse(words[1:])
    for name in values.get("experiments") or ():
        assert name in (*EXPERIMENTS, "all")
    if command.name == "run":
        for name in values["kernels"]:
            assert name in kernels() or name.endswith(".py") or name == "scalar_spmm"  # the example's, once it is moved


def test_make_targets_and_variables_exist():
    makefile = text_of(ROOT / "Makefile")
    commands = command_lines("make")
    assert commands
    for page, words in commands:
        for word in words[1:]:
            name, assigns, _ = word.partition("=")
            wanted = (
                rf"(?m)^{name} \?=" if assigns else rf"(?m)^{re.escape(name)}:|\$\(VENV\)/{re.escape(Path(name).name)}:"
            )
            assert re.search(wanted, makefile), f"{page}: make {word}"


def test_scripts_and_test_files_that_commands_name_exist():
    commands = [*command_lines("python"), *command_lines("pytest")]
    assert commands
    for page, words in commands:
        for word in words[1:]:
            if re.fullmatch(r"[\w./]+\.(py|sbatch)", word):
                assert (ROOT / word).is_file(), f"{page}: {word}"


def test_pytest_options_exist(pytestconfig):
    known = {f"--{name.replace('_', '-')}" for name in vars(pytestconfig.option)} | {"--benchmark"}
    used = {word.partition("=")[0] for _, words in command_lines("pytest") for word in words if word.startswith("--")}
    used |= set(re.findall(r"`(--benchmark-[\w-]+)", text_of(ROOT / "README.md")))
    assert "--benchmark" in used
    assert used <= known


def test_extras_exist():
    project = text_of(ROOT / "pyproject.toml")
    extras = {name for page in PAGES for name in re.findall(r"(?:\.|nnzbench)\[(\w+)\]", text_of(page))}
    assert {"cuda12", "cuda13"} <= extras
    assert all(re.search(rf"(?m)^{name} = \[", project) for name in extras)


def test_links_lead_somewhere():
    for page in PAGES:
        body = re.sub(r"(?s)<!-- nnzbench:headline -->.*?<!-- /nnzbench:headline -->", "", text_of(page))
        for target in re.findall(r"\]\(([^)\s]+)\)", body):
            if target.startswith("http"):
                continue
            path, _, place = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), f"{page.name}: {target}"
            if place and file.suffix == ".md":
                headings = re.findall(r"(?m)^#+ (.+)$", text_of(file))
                slugs = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
                assert place in slugs, f"{page.name}: {target}"


def test_the_headline_has_the_markers_that_the_report_fills():
    readme = text_of(ROOT / "README.md")
    assert len(HEADLINE.findall(readme)) == 1
    assert "| 90 %, over FP8 |" in HEADLINE.search(readme)[0]
    assert "reports/index.html" in readme.split("\n\n")[1]
    assert readme[: readme.index("\n## ")].count("\n") <= 60
    assert "†" not in readme
    assert readme.index("make bench") < HEADLINE.search(readme).start() < readme.index("\n## ")


def test_pages_name_no_machine():
    for page in [*PAGES, *ROOT.glob("runners/**/*.py"), ROOT / "CITATION.cff"]:
        if page.is_file():
            assert not re.search(r"(?<![\w.])/(work|tmp|root|home)\b", text_of(page)), page


def test_every_column_is_explained_in_order():
    explained = re.findall(r"(?m)^\| `(\w+)` \|", text_of(ROOT / "docs" / "records.md"))
    assert explained == list(COLUMNS)


def test_the_kernels_of_the_docs_compute_what_it_says():
    rows = re.findall(r"(?m)^\| (`[^|]+`) \| ([a-z0-9_, ]+) \| ([^|]*16[^|]*|f32) \|", text_of(KERNELS))
    assert len(rows) >= 12
    known = kernels()
    for names, ops, dtypes in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert known[name].ops == set(ops.split(", ")), name
            assert known[name].dtypes == set(re.findall(r"\b(?:b?f\d+|i8)\b", dtypes)), name
    mentioned = set(re.findall(r"`(s\w+_\w+)`", text_of(KERNELS)))
    assert mentioned - set(EXPERIMENTS) <= set(known)


@pytest.mark.parametrize(("name", "dtype"), [("merge_spmm", "f32"), ("aspt", "f32"), ("flash_llm", "f16")])
def test_the_columns_of_the_docs_are_those_that_a_published_kernel_takes(name, dtype):
    taken = set()
    for n in (3, 8, 9, 16, 32, 48, 64, 100, 128):
        problem = Problem("t", f"n{n}", "spmm", 256, 256, n, 0.9, "uniform:0", dtype)
        with contextlib.suppress(Unsupported):
            taken |= {n for _ in kernels()[name].plans(problem, make_operands(problem), "sm_90")}
    (said,) = re.findall(rf"(?m)^\| `{name}`.* as published: (.*) \|$", text_of(KERNELS))
    if said.startswith("any number of n columns"):
        assert {3, 9, 100, 128} <= taken
    else:
        assert taken == set(map(int, re.findall(r"\d+", said.partition(" columns")[0])))


def test_the_docs_and_the_notice_name_every_kernel_of_a_paper_or_library():
    page = text_of(KERNELS)
    named = set(re.findall(r"`(\w+)`", page[: page.index("| architecture |")]))
    own = {name for name in kernels() if about(name).role == "own"}
    assert set(kernels()) - named - own == set()
    patterns = re.findall(r"[a-z][a-z_]+\*?(?=,|\s)", text_of(ROOT / "NOTICE"))
    files = [path.stem for path in (ROOT / "kernels_cu").glob("*.cu") if path.stem not in own]
    assert len(files) > 10
    assert [name for name in files if not any(fnmatch.fnmatchcase(name, one) for one in patterns)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "kernels_cu").glob("*.cu")), ids=lambda path: path.stem)
def test_a_kernels_file_explains_its_defines_and_names_modules_that_exist(path):
    """A define is a word in capitals that neither the file nor a header sets."""
    head, _, code = text_of(path).partition("#include")
    ours = "".join(text_of(one) for one in (ROOT / "kernels_cu").rglob("*.cu*"))
    set_here = {*re.findall(r"#define (\w+)", ours), "NNZ_CPU"}
    used = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", re.sub(r'//.*|"[^"\n]*"', "", code))) - set_here
    assert used - set(re.findall(r"\w+", head)) == set()
    for name in re.findall(r"`(nnzbench\.[\w.]+)`", text_of(path)):
        assert importlib.util.find_spec(name), name


def test_every_source_of_a_pattern_and_every_file_of_data_is_explained():
    known = {kind for kind in sources.KINDS if not kind.startswith(sources.CODEBOOK)} | {sources.CODEBOOK}
    assert known == set(re.findall(r"(?m)^\| `(\w+?)[:<]", text_of(ROOT / "docs" / "data.md")))
    page = text_of(ROOT / "datasets" / "README.md")
    patterns = set(re.findall(r"`(?:published/)?([\w<>*]+\.csv(?:\.gz)?)`", page)) - {"*.csv"}
    files = [path.name for folder in ("", "published") for path in (ROOT / "datasets" / folder).glob("*.csv*")]
    assert files
    assert [name for name in files if not any(fnmatch.fnmatchcase(name, one) for one in patterns)] == []


def test_the_architectures_of_the_docs_are_those_that_are_compiled():
    table = re.findall(r"(?m)^\| (sm_[^|]+) \|[^|]*\| (`[^|]+`) \|", text_of(KERNELS))
    assert [arch for arches, _ in table for arch in arches.split(", ")] == list(compiled_architectures())
    assert [arches for arches, extras in table if "cuda13" not in extras] == ["sm_70"]


def test_tolerances_and_constants_of_measuring_are_the_codes():
    page = text_of(ROOT / "docs" / "measuring.md")
    table = dict(re.findall(r"\| `(\w+)` \| [^|]+ \| ([\d.e-]+) \|", page))
    assert {name: float(value) for name, value in table.items()} == TOLERANCE
    rule, quick = timing.StoppingRule(), timing.QUICK
    constants = [*timing.LAUNCHES, timing.REPLAY_US, timing.LONGEST_REPLAY_US, timing.BEHIND, timing.FAR_BEHIND]
    constants += [rule.min_samples, rule.max_samples, 100 * rule.tolerance, 1e3 * rule.max_seconds]
    constants += [1e3 * rule.ramp_seconds, 100 * quick.tolerance, 1e3 * quick.max_seconds, LEAST_FLUSH_BYTES >> 20]
    assert {f"{one:g}" for one in constants} <= set(re.findall(r"\d+(?:\.\d+)?", page))


def test_the_version_to_cite_is_the_packages():
    citation = text_of(ROOT / "CITATION.cff")
    assert f"\nversion: {nnzbench.__version__}\n" in citation
    assert f"\n## [{nnzbench.__version__}]" in text_of(ROOT / "CHANGELOG.md")
    titles = re.findall(r'(?m)^    title: "(.*)"', citation)
    cited = " ".join(text_of(ROOT / "README.md").split())
    assert titles
    assert all(title in cited for title in titles)


class Small(Experiment):
    """Awkward shapes: one row, an odd number of columns, more columns than the widest tile."""

    def problems(self, *choice):
        sizes = [(1, 40, 3), (37, 29, 131), (16, 64, 66)]
        return [Problem("small", f"p{m}", "spmm", m, k, n, 0.6, "uniform:0") for m, k, n in sizes]


@pytest.mark.parametrize(("bound", "status"), [("i < end", "ok"), ("i + 1 < end", "wrong")])
def test_the_example_kernel_runs_as_the_page_says_and_is_found_wrong_when_it_is(monkeypatch, tmp_path, bound, status):
    page = text_of(ROOT / "docs" / "adding-a-kernel.md")
    files = dict(re.findall(r"(?s)`(scalar_spmm\.\w+)`:\n\n```\w+\n(.*?)```", page))
    assert set(files) == {"scalar_spmm.cu", "scalar_spmm.py"}
    assert files["scalar_spmm.cu"].count("i < end") == 1
    for name, body in files.items():
        (tmp_path / name).write_text(body.replace("i < end", bound))
    others = {name: one for name, one in kernels().items() if name != "scalar_spmm"}  # also once it is moved
    monkeypatch.setattr(kernel, "_registry", others)  # a copy: the example stays in this test
    monkeypatch.setattr(kernel, "_about", dict(kernel._about))
    monkeypatch.setitem(EXPERIMENTS, "small", Small("small", "", "", "", {}))
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "small", "--quick", "--device", "cpu", "--kernel", "./scalar_spmm.py", "--out", "build/mine"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == (status == "wrong"), result.output
    rows = read_records(tmp_path / "build" / "mine" / "cpu" / "small" / "records.csv")
    assert {(row.problem, row.variant, row.status) for row in rows} == {
        (problem, variant, status) for problem in ("p1", "p37", "p16") for variant in ("x32", "x64", "x128")
    }


def test_the_snippet_of_devices_runs_and_asan_finds_nothing():
    (snippet,) = blocks(ROOT / "docs" / "devices.md", "python")
    found: dict = {}
    exec(
        compile(snippet.replace("device.close()", "result = prepared.read()\ndevice.close()"), "devices.md", "exec"),
        found,
    )
    assert found["result"].shape == (33, 37)


def test_the_snippet_of_generations_prints_each_gpus_time_and_share(monkeypatch, tmp_path, capsys):
    for gpu, time in (("tesla-t4", 40.0), ("nvidia-h200", 4.0)):
        slow = record(gpu=gpu, variant="slow", median_us=2 * time, q1_us=None, q3_us=None, limit_us=2.0)
        rows = [slow, dataclasses.replace(slow, selected=True, variant="fast", median_us=time)]
        folder = tmp_path / "reports" / gpu / "sparsert_table1"
        append(folder / "records.csv", rows)
        export(folder, "parquet")
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks(ROOT / "docs" / "generations.md", "python")
    found: dict = {}
    exec(compile(snippet, "generations.md", "exec"), found)
    heading, gpus, _, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["median_us", "share_of_limit"]
    assert gpus.split() == ["gpu", *(2 * ["nvidia-h200", "tesla-t4"])]
    assert row.split()[:4] == ["p", "0123abcd", "sputnik", "f32"]
    assert [float(number) for number in row.split()[4:]] == [4.0, 40.0, 0.5, 0.05]


def test_every_variable_that_the_package_reads_is_documented():
    used = set()
    for path in (ROOT / "suite" / "nnzbench").rglob("*.py"):
        used |= set(re.findall(r'environ(?:\.get\(|\[)"(NNZBENCH_\w+)"', path.read_text(encoding="utf-8")))
    pages = "".join(text_of(page) for page in PAGES)
    assert {"NNZBENCH_CACHE", "NNZBENCH_DATA"} <= used
    assert {name for name in used if name not in pages} == set()
