"""How a processor resizes an image before its encoder sees it, as data: how many tokens it takes follows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import ceil, floor, isqrt, sqrt
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.dispatch import Count, InvalidBlock, Spec
from archsim.spec.tiles import Size, TileRule

LARGEST_AS_IS = 2048
"""Side of the largest image that is thought of where a processor has no limit."""


class ImageRule(Spec):
    """The size in pixels that an image is given. factor: both sides become multiples of it. patch: side of a patch,
    where pixels are counted by whole ones (pad, patches).

    area: the proportions stay, and the area is brought between min_pixels and max_pixels (Qwen-VL); `enlarged`: sides
    shorter than `factor` are made as long as it before (GLM-V). longest: an
    image larger than `edge` on a side is made smaller (Pixtral), and a side shorter than `shortest` longer (Idefics 2).
    budget: as large as max_pixels let it be, enlarged too (Gemma 4). pad: an image of more than max_pixels, or than
    `edge` on a side, is made smaller, and padded (Kimi). fill: sides are filled up, and the image made smaller until
    they then are of max_pixels (GLM-5 Next). grid: of the four multiples around both sides the pair of the nearest
    proportions within max_pixels (Muse Glimmer). patches: brought between least and most by whole patches, filled up
    where there is room (Nemotron Omni). fixed: `edge` x `edge`. as_is: not resized; its last row of pieces is filled
    up, and a column of them is added (Inkling). tiles: cut as `tiles` says; the whole image is of `area` where
    max_pixels is given (LFM2-VL). row_end: a token ends each row but the last, and another the image (Pixtral). around:
    tokens before and behind an image.
    """

    resize: Literal["area", "longest", "budget", "pad", "fill", "grid", "patches", "fixed", "as_is", "tiles"]
    factor: Count = 1
    patch: Count | None = None
    edge: Count | None = None
    shortest: Count | None = None
    min_pixels: Count = 1
    max_pixels: Count | None = None
    row_end: bool = False
    around: int = 0
    enlarged: bool = False
    tiles: TileRule | None = None

    @model_validator(mode="after")
    def _complete(self) -> ImageRule:
        if self.resize == "as_is":
            return self
        by_area = self.resize in ("area", "budget", "pad", "fill", "grid", "patches")
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

    def of_several(self, count: int) -> ImageRule:
        """The rule where a request has so many images, which not all families cut then."""
        if count == 1 or self.tiles is None or not self.tiles.single:
            return self
        return ImageRule(resize="fixed", edge=self.tiles.whole or self.tiles.edge, around=1)

    def pictures(self, width: int, height: int) -> tuple[tuple[int, Size], ...]:
        """(how many, height and width in pixels) of the pictures that the encoder sees of one image."""
        if self.tiles is None:
            return ((1, self.resized(width, height)),)
        *tiles, whole = self.tiles.pictures(width, height)
        return (*tiles, (1, self._area(width, height)) if self.max_pixels else whole)

    def tokens(self, width: int, height: int, vectors: Callable[[Size], int]) -> int:
        """Tokens of an image. vectors: of the encoder, of a picture of so many pixels (height, width)."""
        pictures, ends = self.pictures(width, height), self.around + self._row_ends(width, height)
        if self.tiles is None:
            return ends + sum(n * vectors(size) for n, size in pictures)
        ends += self.tiles.marks_of(width, height)
        if self.tiles.join is None or len(pictures) == 1:
            return ends + sum(n * vectors(size) for n, size in pictures)
        whole = vectors(pictures[-1][1])
        ends += isqrt(whole) if self.tiles.join.whole_rows else 0
        return ends + whole + self.tiles.joined(width, height, isqrt(vectors(pictures[0][1])))

    def _row_ends(self, width: int, height: int) -> int:
        """Tokens at the ends of rows."""
        return sum(n * (size[0] // self.factor) for n, size in self.pictures(width, height)) if self.row_end else 0

    def resized(self, width: int, height: int) -> Size:
        """Height and width in pixels that the encoder is given."""
        if self.resize == "fixed":
            return self.edge or 1, self.edge or 1
        if self.resize == "as_is":
            return ceil(height / self.factor) * self.factor, (width // self.factor + 1) * self.factor
        by: dict[str, Callable[[int, int], Size]] = {
            "longest": self._longest, "pad": self._pad, "area": self._area, "budget": self._budget,
            "fill": self._fill, "grid": self._grid, "patches": self._patches,
        }  # fmt: skip
        return by[self.resize](width, height)

    def _longest(self, width: int, height: int) -> Size:
        ratio = max(height, width) / (self.edge or 1)
        if ratio > 1:
            height, width = floor(height / ratio), floor(width / ratio)
        if self.shortest is not None:
            height, width = max(height, self.shortest), max(width, self.shortest)
        return ((height - 1) // self.factor + 1) * self.factor, ((width - 1) // self.factor + 1) * self.factor

    def _pad(self, width: int, height: int) -> Size:
        patch = self.patch or self.factor
        inside = max(1, height // patch) * max(1, width // patch) * patch**2
        edge = self.edge or max(height, width)
        by = min(1.0, sqrt((self.max_pixels or inside) / inside), edge / height, edge / width)
        rows, columns = (min(max(1, int(side * by)), edge) for side in (height, width))
        return ceil(rows / self.factor) * self.factor, ceil(columns / self.factor) * self.factor

    def _area(self, width: int, height: int) -> Size:
        f, most = self.factor, self.max_pixels or 1
        if self.enlarged and min(height, width) < f:
            by = max(f / height, f / width)
            height, width = int(height * by), int(width * by)
        rows, columns = round(height / f) * f, round(width / f) * f
        if rows * columns > most:
            by = sqrt(height * width / most)
            return max(f, floor(height / by / f) * f), max(f, floor(width / by / f) * f)
        if rows * columns < self.min_pixels:
            by = sqrt(self.min_pixels / (height * width))
            return ceil(height * by / f) * f, ceil(width * by / f) * f
        return rows, columns

    def _fill(self, width: int, height: int) -> Size:
        """`smart_resize` of GLM-5 Next."""
        f, most = self.factor, self.max_pixels or 1

        def filled(rows: float, columns: float) -> Size:
            return ceil(rows / f) * f, ceil(columns / f) * f

        rows, columns = filled(height, width)
        if rows * columns < self.min_pixels:
            by = sqrt(self.min_pixels / (height * width))
            rows, columns = filled(ceil(height * by), ceil(width * by))
        if rows * columns <= most:
            return rows, columns
        low, high = 1, height
        rows, columns = f, f
        while low <= high:
            middle = (low + high) // 2
            found = filled(middle, max(1, floor(width * middle / height)))
            if found[0] * found[1] <= most:
                (rows, columns), low = found, middle + 1
            else:
                high = middle - 1
        return rows, columns

    def _grid(self, width: int, height: int) -> Size:
        """`smart_resize` of Muse Glimmer."""
        f, most = self.factor, (self.max_pixels or 1) // self.factor**2
        rows, columns = height / f, width / f
        ratio = columns / rows
        if rows * columns > most:
            rows = (most / ratio) ** 0.5
            columns = rows * ratio
        around = set(product([floor(rows), ceil(rows)], [floor(columns), ceil(columns)]))
        inside = [(r, k) for r, k in around if r >= 1 and k >= 1 and r * k <= most]
        found = inside or [(max(1, round(rows)), max(1, round(columns)))]
        best = min(found, key=lambda grid: abs(grid[0] / grid[1] - height / width))
        return best[0] * f, best[1] * f

    def _patches(self, width: int, height: int) -> Size:
        """`get_patch_grid_size` of Nemotron Omni."""
        p = self.patch or self.factor
        merge, least, most = self.factor // p, self.min_pixels // p**2, (self.max_pixels or 1) // p**2
        rows, columns = round(height / p + 0.5), round(width / p + 0.5)
        by = min(sqrt(most / (rows * columns)), 1.0)
        rows, columns = max(1, floor(by * rows)), max(1, floor(by * columns))
        if most > least > rows * columns:
            by = sqrt(least / (rows * columns))
            rows, columns = ceil(by * rows), ceil(by * columns)
        rows = _whole(rows, merge, most // columns)
        return rows * p, _whole(columns, merge, most // rows) * p

    def _budget(self, width: int, height: int) -> Size:
        f, by = self.factor, sqrt((self.max_pixels or 1) / (height * width))
        most = (self.max_pixels or 1) // f
        rows, columns = floor(by * height / f) * f, floor(by * width / f) * f
        if not rows:
            return f, min(width // height * f, most)
        return (rows, columns) if columns else (min(height // width * f, most), f)


def _whole(n: int, by: int, most: int) -> int:
    """The multiple of `by` behind `n` where that is at most `most`, else the one before."""
    more = ceil(n / by) * by
    return more if more <= most else max(by, n - n % by)
