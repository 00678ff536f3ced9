"""`archsim calibrate` as a page."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.calibration.calibrate import ClassFit, EngineStack
from archsim.calibration.run import Calibration
from archsim.render.page import Page, Row, Section, footer, percent, plural, row

HEADER = ("rows", "median", "p90", "time-weighted", "formula", "roofline", "constants")


def page(c: Calibration) -> Page:
    """One section per stack; errors are those of shape families that the fit has not seen."""
    fits = sum(len(found) for found in c.fits.values())
    head = (
        f"calibration from {plural(c.rows, 'row')}: {plural(fits, 'fit')} on {plural(len(c.fits), 'stack')}",
        "errors |predicted - measured| / measured on whole shape families that the fit has not seen",
    )
    sections = [_stack(stack, found) for stack, found in c.fits.items()]
    weak = [
        f"{stack.folder}: {_name(f)}: {text}" for stack, found in c.fits.items() for f in found for text in f.warnings
    ]
    ends = [*(("Engine", text) for text in c.engines), *(("Weak", text) for text in weak)]
    ends += [("Skipped", f"{count:,} rows: {reason}") for reason, count in c.skipped.items()]
    ends += [("Written", ", ".join(map(str, c.written)) if c.written else "nothing: this was a dry run")]
    return Page(head=head, sections=(*sections, footer(ends)))


def _stack(stack: EngineStack, fits: Sequence[ClassFit]) -> Section:
    title = " ".join(filter(None, (stack.device, stack.engine, stack.version)))
    return Section(title=title, header=HEADER, align="lrrrrrrl", rows=tuple(_row(f) for f in fits))


def _row(f: ClassFit) -> Row:
    unseen, formula = f.errors, f.formula
    shown = ", ".join(f"{name} {value:.3g}" for name, value in f.fitted.constants.items())
    if unseen is None or formula is None:
        return row(_name(f), f"{f.naive.rows:,}", "-", "-", "-", "-", percent(f.naive.median), shown)
    return row(
        _name(f), f"{unseen.rows:,}", percent(unseen.median), percent(unseen.p90), percent(unseen.time_weighted),
        percent(formula.median), percent(f.naive.median), shown,
    )  # fmt: skip


def _name(f: ClassFit) -> str:
    key = f.key
    return " ".join(filter(None, (key.op, key.dtype, key.kv_dtype and f"kv {key.kv_dtype}", key.kernel[:32])))
