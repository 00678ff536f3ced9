"""How a processor resizes an image before its encoder sees it, as data: how many tokens it takes follows."""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.dispatch import Count, InvalidBlock, Spec


class ImageRule(Spec):
    """The size in pixels that an image is given. factor: both sides become multiples of it.

    area: the proportions stay, and the area is brought between min_pixels and max_pixels (Qwen-VL, GLM-V). longest: an
    image larger than `edge` on a side is made smaller (Pixtral). budget: as large as max_pixels let it be, enlarged
    too (Gemma 4). fixed: `edge` x `edge`. row_end: a token ends each row but the last, and another the image (Pixtral).
    """

    resize: Literal["area", "longest", "budget", "fixed"]
    factor: Count = 1
    edge: Count | None = None
    min_pixels: Count = 1
    max_pixels: Count | None = None
    row_end: bool = False

    @model_validator(mode="after")
    def _complete(self) -> ImageRule:
        wanted = "max_pixels" if self.resize in ("area", "budget") else "edge"
        if getattr(self, wanted) is None:
            raise InvalidBlock(f"`resize: {self.resize}` needs `{wanted}`", "E104")
        return self

    @property
    def largest(self) -> int:
        """Side of a square image that takes most tokens."""
        return self.edge or floor(sqrt(self.max_pixels or 1))

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Height and width in pixels that the encoder is given."""
        if self.resize == "fixed":
            return self.edge or 1, self.edge or 1
        if self.resize == "longest":
            return self._longest(width, height)
        return self._area(width, height) if self.resize == "area" else self._budget(width, height)

    def _longest(self, width: int, height: int) -> tuple[int, int]:
        ratio = max(height, width) / (self.edge or 1)
        if ratio > 1:
            height, width = floor(height / ratio), floor(width / ratio)
        return ((height - 1) // self.factor + 1) * self.factor, ((width - 1) // self.factor + 1) * self.factor

    def _area(self, width: int, height: int) -> tuple[int, int]:
        f, most = self.factor, self.max_pixels or 1
        rows, columns = max(f, round(height / f) * f), max(f, round(width / f) * f)
        if rows * columns > most:
            by = sqrt(height * width / most)
            return max(f, floor(height / by / f) * f), max(f, floor(width / by / f) * f)
        if rows * columns < self.min_pixels:
            by = sqrt(self.min_pixels / (height * width))
            return ceil(height * by / f) * f, ceil(width * by / f) * f
        return rows, columns

    def _budget(self, width: int, height: int) -> tuple[int, int]:
        f, by = self.factor, sqrt((self.max_pixels or 1) / (height * width))
        most = (self.max_pixels or 1) // f
        rows, columns = floor(by * height / f) * f, floor(by * width / f) * f
        if not rows:
            return f, min(width // height * f, most)
        return (rows, columns) if columns else (min(height // width * f, most), f)
