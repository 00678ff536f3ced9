"""The lines of a drawing: straight where they can be, with rounded corners where they pass a box."""

from __future__ import annotations

from archsim.render.drawing.canvas import Canvas
from archsim.render.drawing.flow import Flow
from archsim.render.drawing.layout import Layout

ROUND = 6.0


def draw_stream(canvas: Canvas, flow: Flow, layout: Layout, sizes: dict[str, tuple[float, float]]) -> None:
    """The lines of a layer: blocks on the stream, and the lines that skip them into the sums behind."""
    for (a, b), stops in layout.passes.items():
        start = layout.tops[a] + sizes[a][1]
        end, x0, x1 = layout.tops[b], layout.centres[a], layout.centres[b]
        if not stops:
            _down(canvas, x0, start, x1, end, flow.steps[b].kind not in ("plus", "times"))
            continue
        middle, lane = end + sizes[b][1] / 2, stops[0].x
        turn = start + (stops[0].top - start) / 2
        side = x1 - sizes[b][0] / 2
        canvas.wire(
            f"M{x0:.1f} {start:.1f}V{turn:.1f}H{lane + ROUND:.1f}q{-ROUND:g} 0 {-ROUND:g} {ROUND:g}"
            f"V{middle - ROUND:.1f}q0 {ROUND:g} {ROUND:g} {ROUND:g}H{side:.1f}",
            "k",
        )


def draw_net(canvas: Canvas, flow: Flow, layout: Layout, sizes: dict[str, tuple[float, float]]) -> None:
    """The lines inside a block: from the bottom of a box to the top of another, past the rows between."""
    for (a, b), stops in layout.passes.items():
        x0, y0 = layout.centres[a], layout.tops[a] + sizes[a][1]
        x1, y1 = layout.centres[b], layout.tops[b]
        first, last = (stops[0].x, stops[-1].x) if stops else (x1, x0)
        x0, x1 = _port(x0, sizes[a][0], first), _port(x1, sizes[b][0], last)
        path, x, y = f"M{x0:.1f} {y0:.1f}", x0, y0
        for stop in stops:
            path += _curve(x, y, stop.x, stop.top) + f"V{stop.bottom:.1f}"
            x, y = stop.x, stop.bottom
        canvas.wire(path + _curve(x, y, x1, y1))
        if flow.steps[b].kind not in ("plus", "times"):
            canvas.tip(x1, y1)


def _port(centre: float, width: float, towards: float) -> float:
    """Where on the edge of a box a line to `towards` leaves it."""
    room = max(width / 2 - 10, 0.0)
    return min(max(towards, centre - room), centre + room)


def _curve(x0: float, y0: float, x1: float, y1: float) -> str:
    if abs(x0 - x1) < 0.5:
        return f"V{y1:.1f}"
    middle = (y0 + y1) / 2
    return f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"


def _down(canvas: Canvas, x0: float, y0: float, x1: float, y1: float, tip: bool) -> None:
    path = f"M{x0:.1f} {y0:.1f}"
    path += f"V{y1:.1f}" if abs(x0 - x1) < 0.5 else f"V{(y0 + y1) / 2:.1f}H{x1:.1f}V{y1:.1f}"
    canvas.wire(path)
    if tip:
        canvas.tip(x1, y1)
