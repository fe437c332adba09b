"""`nnzbench best`: a user's own matrices, and which kernel to multiply by them with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nnzbench.advise import layer
from nnzbench.advise.layer import BUDGET_S, EXPERIMENT, OPS, PATTERNS, Layer, Question
from nnzbench.cli import options
from nnzbench.core import paths
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import progress_bar
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.devices import DEVICES

if TYPE_CHECKING:
    from nnzbench.advise.answer import Answer
    from nnzbench.advise.packing import Packer

MANY = 3
"""Layers from which on the ranked tables are left out."""
MOST_BUDGET_S = 180.0
"""Seconds for all matrices of a call where none are named."""
MOST_COLUMNS = 1 << 24
_N = "Columns multiplied by [1,32,256; spmv: 1]; sddmm: length of the products; convolutions: images."


def _widths(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    if not all(word.isdecimal() and 1 <= int(word[:9]) <= MOST_COLUMNS and len(word) < 9 for word in words):
        limits = f"whole numbers from 1 to {MOST_COLUMNS}"
        raise click.BadParameter(f"'{value}' is not a list of {limits}, such as 1,32,256", ctx, param)
    return tuple(dict.fromkeys(map(int, words)))


def _image(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", value.strip())
    if not found or not int(found[1]) or not int(found[2]):
        raise click.BadParameter(f"'{value}' is not HEIGHTxWIDTH", ctx, param)
    return int(found[1]), int(found[2])


def _dtype(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return layer.dtype_of(value)
    except MatrixError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command("best")
@click.argument("matrices", nargs=-1, required=True, metavar="MATRIX...")
@click.option("--n", "ns", callback=_widths, metavar="N,...", help=_N)
@click.option(
    "--dtype",
    callback=_dtype,
    metavar="f32|f16|bf16",
    help="Default: the file's 16 bits; fp16 for sizes from 2048x2048.",
)
@click.option("--op", type=click.Choice(OPS), default="spmm", show_default=True, help="What is computed with it.")
@click.option(
    "--budget", callback=options.seconds_of, metavar="60s|5m", help="Time for all matrices [60s each, 3m at most]."
)
@click.option("--pattern", type=click.Choice(PATTERNS), help="Where the zeros of MxK@0.9 are [uniform].")
@click.option("--match", multiple=True, metavar="GLOB", help="All matrices of a file with such a name; repeatable.")
@click.option("--image", callback=_image, metavar="HxW", help="Convolutions: size of one input image.")
@click.option("--pad", type=click.IntRange(0, 1000), help="Convolutions: zeros at each edge [0].")
@click.option("--stride", type=click.IntRange(1, 1000), help="Convolutions: step between outputs [1].")
@options.kernel_option(metavar="NAME|FILE.py")
@click.option("--device", "device_name", type=click.Choice(list(DEVICES)), help="Default: the GPU.")
@click.option(
    "--gpu", metavar="NAME", help="Estimate for this GPU, such as h200, from its records.", shell_complete=options.gpus
)
@click.option("--reports", type=options.FOLDER, help="With --gpu: read here alone.")
@click.option("--no-crossover", is_flag=True, help="Measure the widths asked for alone.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the crossover: FILE.png and .svg.")
@click.option("--brief", is_flag=True, help="One line for each layer and width, such as for a log of CI.")
@click.option("--verbose", is_flag=True, help="Every kernel, why others have no time, and what is recorded near.")
@click.option("--json", "as_text", is_flag=True, help="The answers as JSON.")
@click.option("--out", type=options.FOLDER, help="Write to OUT/<gpu>/mine/ [results/].")
@click.option(
    "--save", type=click.Path(path_type=Path), help="Pack every pruned layer by its answer, into this folder."
)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Which kernel is fastest for your own MATRIX, against dense, and from which width on dense is.

    MATRIX is a file (.smtx, .mtx, scipy .npz, .npy, .npz, .safetensors, .pt), one array of a file (FILE::NAME), or a
    size and its share of zeros (4096x11008@0.9). Every kernel is checked against float64 and timed within the budget,
    and each row is kept in results/. Without a GPU: --gpu NAME estimates from recorded rows, --device cpu checks.

    --save packs all pruned layers of a checkpoint for nnzbench.torch, by N = 1, 8, 16, 32, 64 unless --n says others.
    """
    asked = SimpleNamespace(**given)
    op, gpu, save, brief = asked.op, asked.gpu, asked.save, asked.brief
    sizes = sum(map(layer.is_size, asked.matrices))
    timed = asked.no_crossover or ctx.get_parameter_source("budget") is ParameterSource.COMMANDLINE
    refusals = {
        "--gpu estimates every width at once: --budget and --no-crossover are of measuring": gpu and timed,
        "--plot draws times, and --device cpu measures none": asked.plot and asked.device_name == "cpu",
        "--brief, --verbose and --json are three ways to tell one answer: choose one": brief
        and (asked.verbose or asked.as_text),
        "--reports says where --gpu finds its records, and says nothing alone": asked.reports and not gpu,
        f"--save packs layers for products with rows of tokens (--op spmm), not for {op}": save and op != "spmm",
        "--match chooses among the matrices of a file, and no file is named": asked.match
        and sizes == len(asked.matrices),
        "--pattern is for a size such as 4096x11008@0.9: a file has its own": asked.pattern and not sizes,
    }
    options.refuse(refusals)
    device, out = asked.device_name, asked.out
    ns = layer.PACKED_WIDTHS if save and asked.ns is None else asked.ns
    where: dict[str, Any] = {"gpu": gpu, "device": device, "out": out}
    question = layer.question(op, ns, asked.dtype, None, BUDGET_S, asked.image, asked.pad, asked.stride, **where)
    if asked.kernels:
        from nnzbench.cli.chosen import names_of_kernels  # loads all experiments

        question = replace(question, kernels=names_of_kernels(asked.kernels))
    if save:
        from nnzbench.advise.operators import archive

        archive.require_place(save)
    if gpu:
        from nnzbench.advise import recorded  # what is slow to load follows when the question can be answered

        folders = [asked.reports] if asked.reports else recorded.usual_folders()
        recorded.find(gpu, folders)
    apart: list[str] = []
    layers = layer.load(asked.matrices, asked.match, asked.pattern or "uniform", op, apart)
    budget_s = asked.budget or min(BUDGET_S * len(layers), MOST_BUDGET_S)
    question = replace(question, budget_s=budget_s, crossover=not (asked.no_crossover or save), packs=bool(save))
    for one in layers:  # what can't be asked is told before anything runs or is estimated
        for n in question.ns:
            one.problem(question.op, n, question.dtype or one.dtype, question.image)
    from nnzbench.advise import tell
    from nnzbench.advise.answer import as_json, sentence

    unpruned: list[Layer] = []
    if save:
        from nnzbench.advise import packing  # loads the search and the devices

        layers, unpruned = packing.prunable(layers)
    if gpu:
        from nnzbench.advise import estimate

        known = recorded.load(gpu, folders)
        every = len(layers) < MANY and (asked.verbose or asked.as_text)
        with progress_bar(lines=False) as progress:
            progress.start(f"estimating for {known.gpu}", len(layers))
            answers = []
            for one in layers:
                progress.step(one.title)
                answers.append(estimate.answer(one, question, known, every))
                progress.advance()
        if save:
            packer = packing.Packer(known.gpu, known.arch, "", packing.drafted(known.arch))
            for one, answer in zip(layers, answers, strict=True):
                packer.add(one, question, answer)
            _save(save, packer, unpruned)
    else:
        answers = _measure(layers, question, asked, unpruned)
    if asked.as_text:
        text = {"answers": [as_json(one) for one in answers], "totals": [vars(one) for one in tell.totals(answers)]}
        click.echo(json.dumps(text, indent=2, allow_nan=False))
    elif brief:
        for answer in answers:
            for width in answer.widths:
                click.echo(f"{answer.label}: {sentence(answer, width)}")
        for note in filter(None, dict.fromkeys(answer.note for answer in answers)):
            click.echo(note, err=True)
    else:
        tell.tell(answers, tell.console(), len(answers) >= MANY, asked.verbose)
    if apart:
        shown = ", ".join(apart[:MANY]) + (f" and {len(apart) - MANY} more" if len(apart) > MANY else "")
        click.echo(f"apart, as {op} takes them for no layer: {shown}; --match asks about any", err=True)
    if asked.plot:
        from nnzbench.advise import draw  # loads Matplotlib

        for path in draw.plot(answers, draw.stem_of(asked.plot)):
            click.echo(f"drawn: {path}", err=True)
    if any(answer.wrong() for answer in answers):
        ctx.exit(1)


def _measure(
    layers: Sequence[Layer], question: Question, asked: SimpleNamespace, unpruned: Sequence[Layer]
) -> list[Answer]:
    from nnzbench import devices
    from nnzbench.advise import measured, packing
    from nnzbench.bench.session import open_session
    from nnzbench.kernels import registry
    from nnzbench.results.records.folder import Results, records_file

    save = asked.save
    try:
        device = devices.open_device(asked.device_name) if asked.device_name else devices.open_gpu()
    except Unsupported as error:
        if asked.device_name:
            raise
        raise Unsupported(f"{error}; --gpu NAME estimates from what is recorded, such as nvidia-h200") from error
    folder = (asked.out or paths.results()) / device.gpu / EXPERIMENT
    with closing(device), progress_bar() as progress:
        session = open_session(device, registry.kernels(), progress.tell)
        packer = packing.packer(session, question.kernels is None)
        left = [one for one in layers if not (save and packer.recall(one, question))]
        found = {}
        with Results(folder, True, False, session.environment, progress.tell) as results:
            alike: dict[str, list[Layer]] = {}
            for one, answer in measured.answers(left, question, session, results, progress):
                found[id(one)] = answer
                if save and answer.like:
                    alike.setdefault(answer.like, []).append(one)
                elif save:
                    packer.add(one, question, answer)
            if alike:
                packer.add_alike(alike, question, session, progress)
        answers = [found[id(one)] for one in left]
        if save:
            _save(save, packer, unpruned)
    click.echo(f"{records_file(folder)} has every row", err=True)
    return answers


def _save(save: Path, packer: Packer, unpruned: Sequence[Layer]) -> None:
    """Writes all layers into one file, and tells on standard error what is in it."""
    from nnzbench.advise import packing
    from nnzbench.advise.operators import archive

    packed = [one for one in packer.layers.values() if not one.dense]
    packer.layers.update({one.title: packing.unpruned(one) for one in unpruned})
    path = packer.archive().save(save)
    size = f"at most {archive.memory_bytes(packed) / 1e6:.1f} MB on the GPU"
    rest = len(packer.layers) - len(packed)
    click.echo(f"{path}: {len(packed)} layers packed ({size}), {rest} stay dense", err=True)
    if packer.hurried:
        text = f"of {packer.hurried} layers no sparse kernel was timed at some N, where they stay dense"
        click.echo(f"{text}: give more time by --budget", err=True)
    if packer.recalled:
        text = f"{packer.recalled} choices were made before: delete {archive.choices_folder()} to make them again"
        click.echo(text, err=True)
