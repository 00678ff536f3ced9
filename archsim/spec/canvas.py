"""How PerceptionLM's processor chooses tiles: the canvas on which an image is largest."""

from __future__ import annotations

from math import floor

Size = tuple[int, int]
"""Rows and columns of tiles."""


def canvas(width: int, height: int, edge: int, most: int) -> Size:
    """Rows and columns of at most so many tiles of `edge` pixels: of those that hold the image as it is, those on which
    its shorter side becomes longest, else of those with its proportions, or the next nearer to a square, most tiles
    (`PerceptionLMImageProcessor` of transformers 5.24).
    """
    grids = _arrangements(most)
    best, longest = None, -1.0
    for columns, rows in grids:
        if columns * edge >= width and rows * edge >= height:
            side = _shorter(width, height, columns * edge, rows * edge)
            if side >= longest:
                best, longest = (rows, columns), side
    return best or _nearest(width / height, grids)


def _arrangements(most: int) -> list[Size]:
    """Columns and rows, many tiles first, those of equal proportions together."""
    by_ratio: dict[float, list[Size]] = {}
    for n in range(most, 0, -1):
        for columns in (k for k in range(1, n + 1) if n % k == 0):
            by_ratio.setdefault(columns / (n // columns), []).append((columns, n // columns))
    return [grid for grids in by_ratio.values() for grid in grids]


def _shorter(width: int, height: int, wide: int, high: int) -> float:
    """The shorter side of an image that is enlarged to a canvas."""
    ratio, by = width / height, min(wide / width, high / height)
    if ratio > 1:
        return floor(by * width / ratio)
    return by * height if ratio == 1 else floor(by * height * ratio)


def _nearest(ratio: float, grids: list[Size]) -> Size:
    """The arrangement for an image that no canvas holds."""
    known = {columns / rows for columns, rows in grids}
    if ratio >= 1:
        near = min((k for k in known if k <= ratio), key=lambda k: abs(k - ratio))
        columns, rows = max((grid for grid in grids if grid[0] / grid[1] == near), key=lambda grid: grid[0])
    else:
        near = min((k for k in known if k > ratio), key=lambda k: abs(1 / k - 1 / ratio))
        columns, rows = max((grid for grid in grids if grid[0] / grid[1] == near), key=lambda grid: grid[1])
    return rows, columns
