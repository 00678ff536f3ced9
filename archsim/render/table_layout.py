"""Which columns of a table stand side by side, and how wide, in so many terminal columns.

What is too wide becomes narrower in this order: a long last column goes on below itself; bars shrink; heads and texts
go on below themselves, the widest first; and the columns that are still too many stand in bands below each other, each
band with the column that names its rows. Figures are never parted.
"""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.data_class import dataclass
from archsim.render.wrapping import columns, longest_word

GAP = "  "
BAR, SHORT_BAR = 24, 8
COMFORTABLE, NARROWEST, LONGEST_KEPT = 20, 12, 32
"""Columns that a text is left where that is enough, that it may shrink to, and of its longest word, kept whole."""

KEYS_SHARE = 0.7
"""Of a line, what the columns that name a row may take."""


@dataclass(slots=True)
class Column:
    """One column: the widths that it may have. text: whether it may go on below itself; bar: whether it is a bar."""

    natural: int
    comfortable: int
    narrowest: int
    width: int
    bar: bool = False
    text: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of all columns, before and after, and the columns of every band.

    under: the last column, which stands below its row; 0 for none.
    """

    natural: tuple[int, ...]
    widths: tuple[int, ...]
    bands: tuple[tuple[int, ...], ...]
    under: int = 0


def unbroken(lines: Sequence[Sequence[str]], heads: Sequence[str]) -> Layout:
    """All columns side by side, with nothing wrapped."""
    count = max([len(heads), *(len(line) for line in lines)], default=0)
    widths = [max([columns(x[i]) for x in (*lines, heads) if i < len(x)], default=0) for i in range(count)]
    return Layout(tuple(widths), tuple(widths), (tuple(range(count)),))


def lay_out(
    lines: Sequence[Sequence[str]],
    heads: Sequence[str],
    align: str,
    bars: frozenset[int],
    available: int,
    keys: int = 1,
) -> Layout:
    """Widths and bands in `available` columns. lines: the cells; heads: the titles, that of the first column too.
    keys: columns that name a row, which every band has.
    """
    whole = unbroken(lines, heads)
    if _total(whole.natural) <= available:
        return whole
    count = len(whole.natural)
    titles = ["", *heads[1:]]  # the section's own stands above where it is longer than the first column
    found = [_column(_cells(lines, i, count), titles[i : i + 1], align[i : i + 1], i in bars) for i in range(count)]
    bare = found[-1].text and count > 2 and not any(heads[count - 1 :])
    if _fits(found, available, bare):
        return Layout(whole.natural, tuple(column.width for column in found), whole.bands)
    if bare:
        rest = lay_out([line[: count - 1] for line in lines], heads[: count - 1], align, bars, available, keys)
        return Layout(whole.natural, (*rest.widths, 0), rest.bands, under=count - 1)
    widths = [min(column.comfortable, available) for column in found]
    bands = _bands(widths, lines, available, keys)
    for band in bands:
        _cut(widths, band, available)
    return Layout(whole.natural, tuple(widths), bands)


def _cells(lines: Sequence[Sequence[str]], i: int, count: int) -> list[str]:
    """The cells of a column; the last one of a shorter row spans the columns behind it and is none."""
    return [line[i] for line in lines if i < len(line) - (len(line) < count)]


def _fits(found: list[Column], available: int, bare: bool) -> bool:
    """Shrink the columns as far as they must, and say whether that was enough. bare: whether the last has no title."""
    _shrink_last(found, "comfortable", available)
    _shrink(found, "comfortable", available)
    if bare:
        found[-1].narrowest = min(found[-1].natural, COMFORTABLE)
    _shrink_last(found, "narrowest", available)
    _shrink(found, "narrowest", available)
    return _total([column.width for column in found]) <= available


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(len(widths) - 1, 0)


def _column(cells: Sequence[str], heads: Sequence[str], align: str, bar: bool) -> Column:
    texts = [*heads, *cells]
    natural = max(map(columns, texts), default=0)
    if bar:
        return Column(natural, min(natural, SHORT_BAR), min(natural, SHORT_BAR), natural, bar=True)
    if align == "r":
        figures = max([*map(longest_word, heads), *map(columns, cells)], default=0)
        return Column(natural, figures, figures, natural)
    word = min(max(map(longest_word, texts), default=0), LONGEST_KEPT)
    comfortable = min(natural, max(COMFORTABLE, word))
    return Column(natural, comfortable, min(natural, max(NARROWEST, word)), natural, text=True)


def _shrink_last(found: list[Column], floor: str, available: int) -> None:
    last = found[-1]
    if last.text:
        excess = _total([column.width for column in found]) - available
        last.width = max(last.width - max(excess, 0), getattr(last, floor))


def _shrink(found: list[Column], floor: str, available: int) -> None:
    """Take from bars first, then a column at a time from the widest."""
    for bars in (True, False):
        while _total([column.width for column in found]) > available:
            loose = [column for column in found if column.bar is bars and column.width > getattr(column, floor)]
            if not loose:
                break
            max(loose, key=lambda column: column.width).width -= 1


def _cut(widths: list[int], band: Sequence[int], available: int) -> None:
    """Make the widest column of a band as narrow as the line takes, where even one is too wide."""
    excess = _total([widths[i] for i in band]) - available
    if excess > 0:
        widest = max(band, key=lambda i: widths[i])
        widths[widest] = max(widths[widest] - excess, 1)


def _bands(
    widths: Sequence[int], lines: Sequence[Sequence[str]], available: int, keys: int
) -> tuple[tuple[int, ...], ...]:
    """Columns side by side as long as they find room, in every band behind those that name its rows."""
    filled = [i for i in range(len(widths)) if any(line[i].strip() for line in lines if i < len(line))]
    named = tuple(range(max((filled[0] if filled else 0) + 1, keys)))
    while named and _total([widths[i] for i in named]) > available * KEYS_SHARE:
        named = named[:-1]
    bands: list[tuple[int, ...]] = []
    band = list(named)
    for i in range(len(named), len(widths)):
        if len(band) > len(named) and _total([widths[j] for j in (*band, i)]) > available:
            bands.append(tuple(band))
            band = list(named)
        band.append(i)
    return (*bands, tuple(band))
