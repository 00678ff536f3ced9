"""How a processor cuts an image into tiles, each of which the encoder sees as a picture of its own, as data."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf, isqrt, log, sqrt
from typing import Literal

from archsim.blocks.dispatch import Count, Spec
from archsim.spec.canvas import canvas

Size = tuple[int, int]
"""Height and width in pixels, or rows and columns."""


class TileRule(Spec):
    """Tiles of `edge` x `edge` pixels, at most `most`; the whole image is one more where there are several.

    choose: closest: the arrangement whose proportions are nearest to the image's, the larger one of equals up to twice
    its area (InternVL). fits: the one that the image has to be enlarged least for, else made smaller least, with the
    fewest tiles (Llama 4, Command A Vision). slices: as many as areas of a tile, of proportions nearest to the image's;
    pictures keep the image's proportions at about a tile's area, in multiples of `factor` (MiniCPM-V). sides: `most`
    along the longer side, which is enlarged or made smaller to them, and as many as the other side then needs
    (Idefics 3); `in_all` tiles at most, for which there are fewer along the longer side (UltraVBERT). canvas: the
    one that the shorter side is longest on, and the whole image always (PerceptionLM).

    marks: tokens that stand around an image; per_picture: beside each picture, per_tile: beside each tile where there
    are several, between_rows: between two rows of these.
    """

    choose: Literal["closest", "fits", "slices", "sides", "canvas"]
    edge: Count
    most: Count
    in_all: Count | None = None
    factor: Count = 1
    marks: int = 0
    per_picture: int = 0
    per_tile: int = 0
    between_rows: int = 0

    @property
    def largest(self) -> int:
        """Side of a square image that takes most tokens."""
        return self.edge * (self.most if self.choose == "sides" else isqrt(self.most))

    def pictures(self, width: int, height: int) -> tuple[tuple[int, Size], ...]:
        """(how many, height and width in pixels) of the pictures that the encoder sees: the whole image last."""
        rows, columns = self.arrangement(width, height)
        n = rows * columns
        if self.choose == "slices":
            tile = self._near(height / rows, width / columns) if n > 1 else (0, 0)
            whole = self._near(height, width, enlarge=n == 1)
        else:
            tile = whole = (self.edge, self.edge)
        return ((n, tile), (1, whole)) if n > 1 or self.choose == "canvas" else ((1, whole),)

    def marks_of(self, width: int, height: int) -> int:
        """Tokens that are no part of a picture."""
        rows, columns = self.arrangement(width, height)
        n = rows * columns
        beside = n * self.per_tile + (rows - 1) * self.between_rows + (n + 1) * self.per_picture
        return self.marks + (beside if n > 1 else self.per_picture)

    def arrangement(self, width: int, height: int) -> Size:
        """Rows and columns of tiles."""
        if self.choose == "slices":
            return self._slices(width, height)
        if self.choose == "canvas":
            return canvas(width, height, self.edge, self.most)
        if self.choose == "sides":
            return self._sides(width, height)
        return self._closest(width, height) if self.choose == "closest" else self._fitting(width, height)

    def _arrangements(self) -> Iterator[Size]:
        """Rows and columns of at most so many tiles, fewer tiles first."""
        found = [(r, k) for k in range(1, self.most + 1) for r in range(1, self.most + 1) if r * k <= self.most]
        return iter(sorted(found, key=lambda grid: grid[0] * grid[1]))

    def _closest(self, width: int, height: int) -> Size:
        best, least = (1, 1), inf
        for rows, columns in self._arrangements():
            off = abs(width / height - columns / rows)
            if off < least or (off == least and width * height > 0.5 * self.edge**2 * rows * columns):
                best, least = (rows, columns), off
        return best

    def _fitting(self, width: int, height: int) -> Size:
        scales = {(r, k): min(k * self.edge / width, r * self.edge / height) for r, k in self._arrangements()}
        enough = {grid: scale for grid, scale in scales.items() if scale >= 1}
        wanted = min(enough.values()) if enough else max(scales.values())
        return next(grid for grid, scale in scales.items() if scale == wanted)

    def _sides(self, width: int, height: int) -> Size:
        long, fewer = self.most, self._across(width, height, self.most)
        while self.in_all is not None and long > 1 and long * fewer > self.in_all:
            long, fewer = long - 1, self._across(width, height, long - 1)
        return (fewer, long) if width >= height else (long, fewer)

    def _across(self, width: int, height: int, long: int) -> int:
        """Tiles along the shorter side where there are so many along the longer one."""
        longer, ratio = long * self.edge, width / height
        shorter = int(longer / ratio) if width >= height else int(longer * ratio)
        return ceil(max(shorter + shorter % 2, 1) / self.edge)

    def _slices(self, width: int, height: int) -> Size:
        n = min(ceil(width * height / self.edge**2), self.most)
        best, least = (1, 1), inf
        for count in (n - 1, n, n + 1) if n > 1 else ():
            if count == 1 or count > self.most:
                continue
            for rows in (r for r in range(1, count + 1) if count % r == 0):
                off = abs(log(width / height) - log(count // rows / rows))
                if off < least or (off == least and rows > best[0]):
                    best, least = (rows, count // rows), off
        return best

    def _near(self, height: float, width: float, enlarge: bool = True) -> Size:
        """About a tile's area at these proportions; a smaller image as it is unless it is enlarged."""
        if enlarge or height * width > self.edge**2:
            ratio = width / height
            height = int(self.edge / sqrt(ratio))
            width = int(height * ratio)
        f = self.factor
        return max(round(height / f) * f, f), max(round(width / f) * f, f)
