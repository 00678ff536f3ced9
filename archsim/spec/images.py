"""How a processor resizes an image before its encoder sees it, as data: how many tokens it takes follows."""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.dispatch import Count, InvalidBlock, Spec
from archsim.spec.tiles import Size, TileRule

LARGEST_AS_IS = 2048
"""Side of the largest image that is thought of where a processor has no limit."""


class ImageRule(Spec):
    """The size in pixels that an image is given. factor: both sides become multiples of it. patch: side of a patch,
    where pixels are counted by whole ones (pad).

    area: the proportions stay, and the area is brought between min_pixels and max_pixels (Qwen-VL, GLM-V). longest: an
    image larger than `edge` on a side is made smaller (Pixtral). budget: as large as max_pixels let it be, enlarged
    too (Gemma 4). pad: an image of more than max_pixels, or than `edge` on a side, is made smaller, and padded (Kimi).
    fixed: `edge` x `edge`. as_is: not resized; its last row of pieces is filled up, and a column of them is added
    (Inkling). tiles: cut as `tiles` says. row_end: a token ends each row but the last, and another the
    image (Pixtral). around: tokens that stand around it.
    """

    resize: Literal["area", "longest", "budget", "pad", "fixed", "as_is", "tiles"]
    factor: Count = 1
    patch: Count | None = None
    edge: Count | None = None
    min_pixels: Count = 1
    max_pixels: Count | None = None
    row_end: bool = False
    around: int = 0
    tiles: TileRule | None = None

    @model_validator(mode="after")
    def _complete(self) -> ImageRule:
        if self.resize == "as_is":
            return self
        by_area = self.resize in ("area", "budget", "pad")
        wanted = "max_pixels" if by_area else "tiles" if self.resize == "tiles" else "edge"
        if getattr(self, wanted) is None:
            raise InvalidBlock(f"`resize: {self.resize}` needs `{wanted}`", "E104")
        return self

    @property
    def largest(self) -> int:
        """Side of a square image that takes most tokens."""
        if self.tiles is not None:
            return self.tiles.largest
        if self.resize == "as_is":
            return self.edge or LARGEST_AS_IS
        sides = [self.edge, floor(sqrt(self.max_pixels)) if self.max_pixels else None]
        return min(side for side in sides if side)

    def pictures(self, width: int, height: int) -> tuple[tuple[int, Size], ...]:
        """(how many, height and width in pixels) of the pictures that the encoder sees of one image."""
        return ((1, self.resized(width, height)),) if self.tiles is None else self.tiles.pictures(width, height)

    def marks(self, width: int, height: int) -> int:
        """Tokens of an image that are no vectors of the encoder."""
        ends = sum(n * (size[0] // self.factor) for n, size in self.pictures(width, height)) if self.row_end else 0
        return ends + self.around + (self.tiles.marks_of(width, height) if self.tiles is not None else 0)

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Height and width in pixels that the encoder is given."""
        if self.resize == "fixed":
            return self.edge or 1, self.edge or 1
        if self.resize == "as_is":
            return ceil(height / self.factor) * self.factor, (width // self.factor + 1) * self.factor
        if self.resize == "longest":
            return self._longest(width, height)
        if self.resize == "pad":
            return self._pad(width, height)
        return self._area(width, height) if self.resize == "area" else self._budget(width, height)

    def _longest(self, width: int, height: int) -> tuple[int, int]:
        ratio = max(height, width) / (self.edge or 1)
        if ratio > 1:
            height, width = floor(height / ratio), floor(width / ratio)
        return ((height - 1) // self.factor + 1) * self.factor, ((width - 1) // self.factor + 1) * self.factor

    def _pad(self, width: int, height: int) -> tuple[int, int]:
        patch = self.patch or self.factor
        inside = max(1, height // patch) * max(1, width // patch) * patch**2
        edge = self.edge or max(height, width)
        by = min(1.0, sqrt((self.max_pixels or inside) / inside), edge / height, edge / width)
        rows, columns = (min(max(1, int(side * by)), edge) for side in (height, width))
        return ceil(rows / self.factor) * self.factor, ceil(columns / self.factor) * self.factor

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
