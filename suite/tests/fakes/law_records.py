"""Records of an invented GPU whose times follow a law, for tests of what is estimated from them."""

from functools import partial

from fake_records import by_law


def law(kernel, m, k, n, nnz):
    """Microseconds that the invented GPU takes."""
    return 4.0 + 2e-9 * m * k * n if kernel == "cublas" else 2.0 + 2e-8 * nnz * n + 1e-7 * m * n


VARIANTS = {"cublas": "f32_x", "sputnik": "v", "balanced": "paper_w8"}
LAWS = {(kernel, variant): partial(law, kernel) for kernel, variant in VARIANTS.items()}
SIZES = ((256, 512, 1024, 2048), (256, 1024, 2048), (8, 64, 512))
RECORDS = by_law(LAWS, "sputnik_rnn", *SIZES, levels=(0.8, 0.95))
