"""Attention masks and layer patterns as small pictures."""

from __future__ import annotations

from dataclasses import replace

from archsim.graph.step import Mask
from archsim.render.drawing.canvas import Canvas, Picture

TOKENS = 14
CELL = 6.0
"""Tokens of the picture of a mask, and the side of one (query, key) pair in it."""

WINDOW, CHUNK, PREFIX, FIRST, STRIDE = 4, 5, 5, 2, 4
"""What windows and the like are in a picture: not to scale."""


def drawn_mask(mask: Mask) -> Mask:
    """The mask at the size of a picture."""
    return replace(
        mask, window=min(mask.window, WINDOW), chunk=min(mask.chunk, CHUNK), prefix=min(mask.prefix, PREFIX),
        global_tokens=min(mask.global_tokens, FIRST), block=min(mask.block, 1), vertical=min(mask.vertical, STRIDE),
    )  # fmt: skip


def sees(mask: Mask, query: int, key: int) -> bool:
    """Whether a query attends to a key (both counted from 0), without the choice of an indexer."""
    if mask.prefix and query < mask.prefix and key < mask.prefix:
        return True
    if mask.causal and key > query:
        return False
    if mask.global_tokens and (key < mask.global_tokens or (not mask.causal and query < mask.global_tokens)):
        return True
    if mask.chunk:
        return query // mask.chunk == key // mask.chunk
    if not mask.window:
        return True
    far = abs(query - key)
    if far < mask.window or (far == mask.window and not mask.causal):
        return True
    return bool(mask.vertical) and (key // max(mask.block, 1)) % mask.vertical == mask.vertical - 1


def mask_picture(mask: Mask) -> Picture:
    """Queries downwards, keys across: a filled cell is a pair that is computed. Of an indexer, some keys that it may
    choose."""
    canvas, small = Canvas(), drawn_mask(mask)
    side = TOKENS * CELL
    canvas.put(f'<rect class="cell" x="0" y="0" width="{side:g}" height="{side:g}"/>')
    for query in range(TOKENS):
        row = [key for key in range(TOKENS) if sees(small, query, key)]
        if mask.top_k:
            row = [key for key in row if (key * 7 + query * 3) % 5 < 2 or key == query]
        path = "".join(f"M{start * CELL:g} {query * CELL:g}h{(end - start) * CELL:g}v{CELL:g}h{(start - end) * CELL:g}z"
                       for start, end in _runs(row))  # fmt: skip
        canvas.put(f'<path class="on" d="{path}"/>')
    lines = "".join(f"M{i * CELL:g} 0V{side:g}M0 {i * CELL:g}H{side:g}" for i in range(1, TOKENS))
    canvas.put(f'<path class="grid" d="{lines}"/>')
    return canvas.done(TOKENS * CELL, TOKENS * CELL)


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Neighbouring places as (first, behind the last)."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place:
            found[-1] = found[-1][0], place + 1
        else:
            found.append((place, place + 1))
    return found


MOST_LAYERS = 200
"""Layers of a pattern that get a cell of their own."""


def pattern_picture(letters: list[str], order: list[str], room: float) -> Picture:
    """One cell for each layer, first to last, coloured by its kind."""
    canvas, each = Canvas(), 20
    side = round(min(15.0, room / each), 1)
    cells: dict[str, str] = {}
    for i, letter in enumerate(letters):
        x, y = i % each * side, i // each * (side + 3)
        cells[letter] = cells.get(letter, "") + f"M{x:.4g} {y:.4g}h{side - 2:.3g}v{side:.3g}h{2 - side:.3g}z"
    for letter, path in cells.items():
        canvas.put(f'<path class="k{order.index(letter) % 6}" d="{path}"/>')
    for row in range(0, len(letters), each):
        part = letters[row : row + each]
        places = " ".join(f"{i * side + side / 2 - 1:.4g}" for i in range(len(part)))
        if all(len(letter) == 1 for letter in part):
            y = row // each * (side + 3) + side / 2 + 3
            canvas.put(f'<text class="in m" x="{places}" y="{y:.4g}">{"".join(part)}</text>')
    rows = (len(letters) + each - 1) // each
    return canvas.done(min(len(letters), each) * side, rows * (side + 3))


EXPERTS = 24


def experts_picture(total: int, chosen: int) -> Picture:
    """A row of experts, those that one token uses filled; of many, as many as there is room for."""
    canvas, side, gap = Canvas(), 9.0, 3.0
    shown = min(total, EXPERTS)
    taken = {round(i * shown / chosen) for i in range(chosen)} if chosen < shown else set(range(shown))
    for i in range(shown):
        kind = "chosen" if i in taken else "small"
        canvas.put(f'<rect class="{kind}" x="{i * (side + gap):g}" y="0" width="{side:g}" height="{side:g}" rx="2"/>')
    width = shown * (side + gap) - gap
    if total > shown:
        canvas.text(width + 4, side, "…", "s")
        width += 16
    return canvas.done(width, side)
