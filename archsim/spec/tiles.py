"""How a processor cuts an image into tiles, each of which the encoder sees as a picture of its own, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil, inf, isqrt, log, sqrt
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.dispatch import Count, InvalidBlock, Spec
from archsim.spec.canvas import canvas

Size = tuple[int, int]
"""Height and width in pixels, or rows and columns."""


MOST_TILES = 1024
"""Tiles of an image: all their arrangements are looked through."""


class JoinRule(Spec):
    """The vectors of all tiles laid side by side as one image, with a token at the end of each of its rows.

    cut: what padding to whole tiles gave is taken off again: at both ends alike (LLaVA-NeXT), or behind the image, by
    whole patches of `patch` pixels (Phi-4). most: a larger image is made smaller to about so many tiles' vectors
    (LLaVA-OneVision). overlap: pixels that neighbouring tiles share, each vector then being of `unit` x `unit` pixels
    (Molmo 2). whole_rows: tokens end the rows of the whole image as well.
    """

    cut: Literal["both_ends", "behind"] | None = None
    patch: Count = 1
    most: Count | None = None
    overlap: int = 0
    unit: Count = 1
    whole_rows: bool = False

    def rows_and_columns(self, size: Size, tiles: Size, edge: int, side: int) -> Size:
        """Of the joined vectors, for an image of `size` on rows and columns of tiles of `side` x `side` vectors."""
        if self.overlap:
            rows, columns = (ceil((n * (edge - self.overlap) + self.overlap) / self.unit) for n in tiles)
        elif self.cut == "behind":
            rows, columns = self._without_padding(size, tiles, edge, side)
        else:
            rows, columns = self._middle(size, (tiles[0] * side, tiles[1] * side))
        by = sqrt(rows * columns / (self.most * side**2)) if self.most else 1.0
        return (int(rows // by), int(columns // by)) if by > SHRUNK_FROM else (rows, columns)

    def _middle(self, size: Size, grid: Size) -> Size:
        """`LlavaNextProcessor._get_unpadded_features`."""
        (height, width), (rows, columns) = size, grid
        if self.cut is None:
            return grid
        if width / height > columns / rows:
            return rows - (rows - int(round(height * (columns / width), 7))) // 2 * 2, columns
        return rows, columns - (columns - int(round(width * (rows / height), 7))) // 2 * 2

    def _without_padding(self, size: Size, tiles: Size, edge: int, side: int) -> Size:
        """`Phi4MultimodalImageProcessor.dynamic_preprocess`: what is left of both sides of the tiles."""
        across = edge // self.patch
        by = min(n * edge / length for n, length in zip(tiles, size, strict=True))
        kept = (
            n * across - (n * edge - min(int(length * by), n * edge)) // self.patch
            for n, length in zip(tiles, size, strict=True)
        )
        rows, columns = (ceil(n * side / across) for n in kept)
        return rows, columns


SHRUNK_FROM = 1.1
"""How much larger each side of an image has to be than `most` for it to be made smaller."""


class TileRule(Spec):
    """Tiles of `edge` x `edge` pixels, at most `most` and at least `least`; the whole image is one more where there are
    several, or `always`, of `whole` x `whole` pixels where that is not the tiles' size.

    choose: closest: the arrangement whose proportions are nearest to the image's, the larger one of equals up to twice
    its area (InternVL), none of more than `longest` tiles on a side. fits: the one that the image has to be enlarged
    least for, else made smaller least, with the fewest tiles (Llama 4, Command A Vision); of equals the one with fewer
    columns, or with fewer rows (crops: Molmo 2, whose tiles overlap). slices: as many as areas of a tile, of
    proportions nearest to the image's; pictures keep the image's proportions at about a tile's area, in multiples of
    `factor` (MiniCPM-V). sides: `most` along the longer side, which is enlarged or made smaller to them, and as many as
    the other side then needs (Idefics 3); `in_all` tiles at most, for which there are fewer along the longer side
    (UltraVBERT). canvas: the one that the shorter side is longest on (PerceptionLM). listed: of `arrangements` the one
    on which most of the image's pixels stay, with the least padding (LLaVA-NeXT). cover: as many as
    cover the image, else as closest (Phi-4). covering: the fewest tiles that show nine tenths of the image at its own
    size, else those that show most (Ovis 2). windows: of 504 pixels, or of the shorter side of a long or small image
    (Step 3.7).

    beyond: pixels up to which an image is not cut. single: nor is one of several images. marks: tokens that stand
    around an image; alone: around one that is not cut, where they are others; per_picture: beside each picture,
    per_tile: beside each tile where there are several, between_rows: between two rows of these. join: tiles' vectors as
    one image's.
    """

    choose: Literal["closest", "fits", "crops", "slices", "sides", "listed", "cover", "covering", "windows", "canvas"]
    edge: Count
    most: Count
    in_all: Count | None = None
    least: Count = 1
    longest: Count | None = None
    factor: Count = 1
    whole: Count | None = None
    always: bool = False
    arrangements: tuple[Size, ...] = ()
    beyond: int = 0
    single: bool = False
    marks: int = 0
    alone: int | None = None
    per_picture: int = 0
    per_tile: int = 0
    between_rows: int = 0
    join: JoinRule | None = None

    @model_validator(mode="after")
    def _possible(self) -> TileRule:
        if self.least > self.most:
            raise InvalidBlock(f"`tiles` of an image are at least {self.least:,} and at most {self.most:,}")
        if self.most > MOST_TILES and self.choose != "listed":
            raise InvalidBlock(f"an image has at most {MOST_TILES:,} tiles, not {self.most:,}")
        if self.choose == "listed" and not all(min(grid) > 0 for grid in self.arrangements or ((0, 0),)):
            raise InvalidBlock("`choose: listed` needs `arrangements` of at least one row and one column of tiles")
        return self

    @property
    def largest(self) -> int:
        """Side of a square image that takes most tokens."""
        if self.choose == "listed":
            return self.edge * max(min(grid) for grid in self.arrangements)
        return self.edge * (self.most if self.choose == "sides" else isqrt(self.most))

    def pictures(self, width: int, height: int) -> tuple[tuple[int, Size], ...]:
        """(how many, height and width in pixels) of the pictures that the encoder sees: the whole image last."""
        rows, columns = self.arrangement(width, height)
        n = rows * columns
        if self.choose == "slices":
            tile = self._near(height / rows, width / columns) if n > 1 else (0, 0)
            whole = self._near(height, width, enlarge=n == 1)
        else:
            tile, side = (self.edge, self.edge), self.whole or self.edge
            whole = side, side
        return ((n, tile), (1, whole)) if n > 1 or self.always else ((1, whole),)

    def marks_of(self, width: int, height: int) -> int:
        """Tokens that are no part of a picture."""
        rows, columns = self.arrangement(width, height)
        n = rows * columns
        if n == 1 and not self.always:
            return self.per_picture + (self.marks if self.alone is None else self.alone)
        return self.marks + n * self.per_tile + (rows - 1) * self.between_rows + (n + 1) * self.per_picture

    def joined(self, width: int, height: int, side: int) -> int:
        """Vectors of all tiles, of `side` x `side` each, as one image, and tokens at the ends of its rows."""
        if self.join is None:
            return 0
        tiles = self.arrangement(width, height)
        rows, columns = self.join.rows_and_columns((height, width), tiles, self.edge, side)
        return rows * (columns + 1)

    def arrangement(self, width: int, height: int) -> Size:
        """Rows and columns of tiles."""
        by: dict[str, Callable[[int, int], Size]] = {
            "closest": self._closest, "fits": self._fitting, "crops": self._crops, "slices": self._slices,
            "sides": self._sides, "listed": self._listed, "cover": self._cover, "covering": self._covering,
            "windows": self._windows, "canvas": self._canvas,
        }  # fmt: skip
        f = self.factor
        area = max(round(height / f) * f, f) * max(round(width / f) * f, f)
        return by[self.choose](width, height) if area > self.beyond else (1, 1)

    def _arrangements(self) -> Iterator[Size]:
        """Rows and columns of at most so many tiles, fewer tiles first."""
        sides = range(1, min(self.most, self.longest or self.most) + 1)
        found = [(r, k) for k in sides for r in sides[: self.most // k] if r * k >= self.least]
        return iter(sorted(found, key=lambda grid: grid[0] * grid[1]))

    def _canvas(self, width: int, height: int) -> Size:
        return canvas(width, height, self.edge, self.most)

    def _closest(self, width: int, height: int) -> Size:
        best, least = (1, 1), inf
        for rows, columns in self._arrangements():
            off = abs(width / height - columns / rows)
            if off < least or (off == least and width * height > 0.5 * self.edge**2 * rows * columns):
                best, least = (rows, columns), off
        return best

    def _fitting(self, width: int, height: int) -> Size:
        return self._least_scaled(self._arrangements(), width, height, self.edge)

    def _crops(self, width: int, height: int) -> Size:
        shared = self.join.overlap if self.join is not None else 0
        by_rows = sorted(self._arrangements(), key=lambda grid: (grid[0] * grid[1], grid[0]))
        return self._least_scaled(by_rows, width - shared, height - shared, self.edge - shared)

    @staticmethod
    def _least_scaled(grids: Iterable[Size], width: int, height: int, edge: int) -> Size:
        """`Molmo2`'s and Command A Vision's `get_optimal_tiled_canvas`, with sizes that may be nothing or less."""
        scales = {(r, k): min(_ratio(k * edge, width), _ratio(r * edge, height)) for r, k in grids}
        enough = {grid: scale for grid, scale in scales.items() if scale >= 1}
        wanted = min(enough.values()) if enough else max(scales.values())
        return next(grid for grid, scale in scales.items() if scale == wanted)

    def _listed(self, width: int, height: int) -> Size:
        """`transformers.image_processing_utils.select_best_resolution`."""
        area = width * height

        def kept(grid: Size) -> tuple[int, int]:
            by = min(grid[1] * self.edge / width, grid[0] * self.edge / height)
            pixels = min(int(width * by) * int(height * by), area)
            return pixels, pixels - grid[0] * grid[1] * self.edge**2

        return max(self.arrangements, key=kept)

    def _cover(self, width: int, height: int) -> Size:
        rows, columns = ceil(height / self.edge), ceil(width / self.edge)
        return (rows, columns) if rows * columns <= self.most else self._closest(width, height)

    def _covering(self, width: int, height: int) -> Size:
        """`Ovis2`'s `get_min_tile_covering_grid`, whose rows cut the image and then count columns."""
        shown = {grid: self._shown((grid[1], grid[0]), width, height) for grid in self._arrangements()}
        enough = [grid for grid, share in shown.items() if share > COVERED]
        if enough:
            return min(enough, key=lambda grid: (grid[0] * grid[1], -shown[grid]))
        return min(shown, key=lambda grid: (-shown[grid], grid[0] * grid[1]))

    def _shown(self, grid: Size, width: int, height: int) -> float:
        """Share of the image's pixels that tiles show, where one that is larger than a tile is made smaller."""
        rows, columns = grid
        high, wide = height // rows, width // columns
        heights = [high] * (rows - 1) + [height - (rows - 1) * high]
        widths = [wide] * (columns - 1) + [width - (columns - 1) * wide]
        shown = 0.0
        for long, short in (sorted((h, w), reverse=True) for h in heights for w in widths):
            shown += min(long, self.edge) * (short / long * self.edge if long > self.edge else short)
        return shown / (width * height)

    def _windows(self, width: int, height: int) -> Size:
        """`Step3p7ImageProcessor._plan_patches`."""
        longest, whole = self.longest or max(width, height), self.whole or self.edge
        if min(width, height) < 32 and max(width / height, height / width) > 4:
            width = height = max(width, height)
        if max(width, height) > longest:
            by = longest / max(height, width)
            width, height = int(width * by), int(height * by)
        short, long = sorted((width, height))
        window = min(short, self.edge) if long > whole and long / short > 4 else self.edge
        if long <= whole:
            window = short if long / short > 1.5 else 0
        if not window:
            return 1, 1
        rows, columns = (
            max(1, side // window + (side >= window and side % window > 0.2 * window)) for side in (height, width)
        )
        return rows, columns

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


COVERED = 0.9
"""Share of an image's pixels that Ovis 2 wants to be shown at their own size."""


def _ratio(a: float, b: float) -> float:
    return a / b if b else inf
