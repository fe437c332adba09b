"""How the output of a large batch of images is checked: some images whole, all others in one weighted sum.

A convolution treats every image alike, so a weighted sum of outputs is the output of the same sum of inputs. Weights
differ, so that images in each other's place do not cancel, and an Inf or NaN anywhere stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.data.problems.parts import Part, over_parts
from nnzbench.data.problems.problem import ConvShape

FEWEST_ELEMENTS = 1 << 24
"""Of input and output together, from which on a reference of every image takes longer than timing the kernels."""
FEWEST_IMAGES = 16
SUMMED_ELEMENTS = 1 << 15
"""Of each image, added up at a time: the sum stays in cache, and one large image has work for all cores."""


@dataclass(frozen=True)
class ImageSample:
    """`images` are checked one by one; `weights` has one for each image of the batch, 0 for those."""

    images: tuple[int, ...]
    weights: NDArray[np.float64]

    @property
    def batch(self) -> int:
        """Images of the whole batch."""
        return int(self.weights.size)

    def of(self, batch: NDArray[Any]) -> NDArray[np.float64]:
        """The sampled images, then the weighted sum of the others: (len(images) + 1, ...) from (batch, ...)."""
        return self._taken(batch, lambda array: array)

    def magnitudes(self, batch: NDArray[Any]) -> NDArray[np.float64]:
        """What errors of `of` are measured by: of the sum, the weighted magnitudes over the root of their number.

        Rounding errors of different images are independent, so that they add up like the root of their number.
        """
        taken = self._taken(batch, lambda array: np.abs(array, out=array))
        taken[-1] /= max(1, int(np.count_nonzero(self.weights))) ** 0.5
        return taken

    def _taken(
        self, batch: NDArray[Any], change: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """The sampled images and the weighted ones' sum, all of them changed in their place by `change`."""
        taken = np.empty((len(self.images) + 1, *batch.shape[1:]))
        taken[:-1] = batch[list(self.images)]
        change(taken[:-1])
        summed = [(image, float(self.weights[image])) for image in np.flatnonzero(self.weights)]
        axes = np.argsort(batch.strides[1:], kind="stable")[::-1]  # parts are runs of memory, as of NHWC results
        images, sums = batch.transpose(0, *(axes + 1)), taken[-1].transpose(axes)

        def add(part: Part) -> None:
            """Adds up one part of all images: a sum of whole ones would not stay in cache."""
            total = np.zeros(sums[part].shape)
            weighted = np.empty_like(total)
            for image, weight in summed:
                np.multiply(images[image][part], weight, out=weighted, dtype=np.float64)
                total += change(weighted)
            sums[part] = total

        over_parts(add, sums.shape, SUMMED_ELEMENTS)
        return taken


def sample_images(shape: ConvShape) -> ImageSample | None:
    """The sample of a large batch, always the same one for a shape; None where every image is checked."""
    outputs = shape.filters * shape.out_height * shape.out_width
    elements = shape.batch * (shape.channels * shape.height * shape.width + outputs)
    if elements < FEWEST_ELEMENTS or shape.batch < FEWEST_IMAGES:
        return None
    images = (0, 1, shape.batch // 2, shape.batch - 1)
    rng = np.random.default_rng(shape.batch)
    weights = rng.uniform(0.5, 1.5, shape.batch) * rng.choice([-1.0, 1.0], shape.batch)
    weights[list(images)] = 0.0
    return ImageSample(images, weights)
