"""EIE's own format on a GPU: one byte for a nonzero, beside CSR, dense products and balanced rows."""

from __future__ import annotations

import pandas as pd

from nnzbench import paths
from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUSPARSE, CUSPARSE_F16, DENSE, FP16, Selector, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.eie import LAYER, PAPER
from nnzbench.problems.experiment import AND_F16, Experiment
from nnzbench.report.pages.page import Answer, Dots, Made, Page, Pivot, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "eie_format",
    "One byte per nonzero: EIE's format on a GPU",
    PAPER,
    "Table IV",
    dict.fromkeys(("eie", "balanced", "cusparse", "cublas", "cublaslt", "sputnik", "row_stream"), AND_F16),
)
LAYERS, TWINS, LARGE = (
    tuple(Group(words=f"{words} at batch {batch}", where=f"batch == {batch} and {where}") for batch in (1, 8))
    for words, where in (
        ("layers", "kind == 'codebook_uniform'"),
        ("balanced twins of the layers", "kind == 'codebook_balanced'"),
        ("layers of over 3 million nonzeros", "kind == 'codebook_uniform' and nnz > 3e6"),
    )
)
UNIFORM = Group(words="layers", where="kind == 'codebook_uniform'")
BALANCED_ROWS = Group(words="balanced twins of the layers", where="kind == 'codebook_balanced'")
OTHER = ("cusparse", "sputnik", "row_stream")
OTHERS = Selector("best other sparse kernel, fp32 or fp16", OTHER, "f16", also="f32")
EIE = Selector("EIE's format, fp32 or fp16", ("eie",), "f16", also="f32")
BALANCED = Selector("balanced, fp32 or fp16", ("balanced",), "f16", also="f32")


def expected_bytes(zeros: float) -> float:
    """Bytes of EIE's entries for a nonzero at a uniformly random place, by the share of zeros.

    It takes a byte, and another for each break of a long run: q^16/(1 - q^16) of them at a share q in a long slice.
    """
    return 1 / (1 - zeros**16)


def _bytes(view: View) -> pd.DataFrame:
    rows = view.data.problems.query("batch == 1 and kind == 'codebook_uniform'")
    zeros = [level / 100 for level in rows["level"]]
    sizes = {
        "EIE's format, expected": [expected_bytes(one) for one in zeros],
        "dense fp16": [2 / (1 - one) for one in zeros],
    }
    return rows[["layer", "size"]].assign(**sizes)


def _accuracy(view: View) -> pd.DataFrame:
    """Errors of real pruned weights under a codebook of 15 values and zero."""
    found = pd.read_csv(paths.datasets() / "codebook_loss.csv").query("quantiser == 'codebook'")
    percent = found[["weights_error", "outputs_error"]].map("{:.1%}".format)
    size = found["rows"].astype(str) + "×" + found["columns"].astype(str)
    return pd.DataFrame(
        {
            "weights": "`" + found["array"] + "`",
            "size": size,
            "error of the weights": percent["weights_error"],
            "error of the outputs": percent["outputs_error"],
            "nonzeros": found["nonzeros"],
        }
    )


def page() -> Page:
    """Its page."""
    eie, eie32, row_stream, balanced = (
        *(kernel("eie", math) for math in ("f16", "f32")),
        kernel("row_stream", "f16"),
        kernel("balanced", "f16"),
    )
    sparse = (CUSPARSE, CUSPARSE_F16, *(kernel(name, math) for name in OTHER[1:] for math in ("f32", "f16")))
    twins = (kernel("balanced"), balanced, eie32, eie)
    return Page(
        question="Does one byte per nonzero make EIE's layers faster on a GPU than cuSPARSE and the dense product?",
        intro="EIE (ISCA 2016) stores a nonzero as a 4-bit index into a codebook of 16 values and a 4-bit run of "
        "zeros, and breaks longer runs by padding zeros. `eie` decodes these entries on a GPU, in slices of rows "
        "rather than of columns and without skipping zeros among the inputs: the format is the paper's, the mapping "
        "this project's own. The layers are the nine of EIE's table III with uniformly random positions and 15 "
        "different values; `balanced` is timed on twins with as many nonzeros in each of 32 ranges of every row. CSR "
        "takes 8 bytes per nonzero in fp32 and 6 or 4 in fp16, balanced rows 5 or 6 and 3 or 4. `sputnik` and "
        "`row_stream` have no product with a single vector. All kernels are given the weights after clustering, so "
        "that the format itself loses nothing more; what sharing 15 values does to real pruned layers is in the last "
        "table (root mean square over that of the output, standard normal inputs, before the retraining of the shared "
        "values in Deep Compression).",
        attributes=LAYER,
        answers=tuple(Answer(group, eie, FP16, (eie32, row_stream, CUSPARSE_F16, CUSPARSE)) for group in LAYERS),
        comparison=Comparison(
            (eie, eie32, row_stream), (FP16, DENSE, CUSPARSE_F16, CUSPARSE), LAYERS
        ),
        figures=(
            Dots("speedup", "EIE's one byte per nonzero and CSR over dense fp16, nine layers",
                 (eie, eie32, *sparse[:2], row_stream), FP16, x="layer", panels="batch", group=UNIFORM),
        ),
        tables=(
            RatioTable("Over the next best sparse kernel on the same matrix",
                       Comparison((EIE,), (OTHERS,), (*LAYERS, *LARGE)), collapsed=False),
            RatioTable("Over balanced rows, both on the balanced twins",
                       Comparison((eie, eie32), (BALANCED,), TWINS), collapsed=False),
            RatioTable("Every kernel over best dense fp16", Comparison((DENSE, *sparse, eie32, eie), (FP16,), LAYERS)),
            RatioTable("The same on the balanced twins", Comparison(twins, (FP16,), TWINS)),
            Pivot("Over the next best sparse kernel, layer by layer", (EIE,), "ratio", OTHERS, ("layer",), "batch",
                  UNIFORM),
            Pivot("Over balanced rows, twin by twin", (eie,), "ratio", BALANCED, ("layer",), "batch", BALANCED_ROWS),
            *(
                Pivot(f"µs at batch {batch}", (FP16, DENSE, *sparse, eie32, eie), rows=("layer", "size", "level"),
                      group=group)
                for batch, group in zip((1, 8), LAYERS, strict=True)
            ),
            *(
                Pivot(f"µs of the balanced twins at batch {batch}", (FP16, *twins), rows=("layer",), group=group)
                for batch, group in zip((1, 8), TWINS, strict=True)
            ),
            Published("The paper's µs at batch 1, on a Titan X and on EIE's chip", "eie_table4_us",
                      {"layer": "layer", "platform": "on", "matrix": "matrix", "time_us": "µs"},
                      "batch == 1 and (platform == 'GPU' and matrix == 'dense' or platform == 'EIE_actual')"),
            Made("Bytes of the weights per nonzero", _bytes, "counts a format's entries"),
            Made("What the codebook costs real pruned weights in accuracy", _accuracy, "errors are in no record"),
        ),
        baseline=FP16,
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 sums in fp32; the codebook's values are fp16 numbers in both",
    )  # fmt: skip
