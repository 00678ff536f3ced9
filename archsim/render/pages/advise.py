"""`archsim advise` as a page: one line for each change, with its price in every measure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from archsim.base.units import format_bytes
from archsim.candidates.advise import RANKED, TIMED, Advice, Advise, Figures
from archsim.candidates.caveats import load_caveats
from archsim.cost.price import Price
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Page, Row, Section, facts, row

COLUMNS = {
    "tpot_s": "TPOT", "ttft_s": "TTFT", "kv_bytes": "cache", "memory_bytes": "memory", "max_context": "context",
    "params": "parameters", "usd_per_m_output": "cost", "train_flops_per_token": "training FLOPs",
}  # fmt: skip
"""Measures in the order of the table."""

MAIN = ("tpot_s", "ttft_s", "kv_bytes", "memory_bytes", "usd_per_m_output")
"""Measures on a page, beside the one that ranks; `-v` shows all."""

MOST_CHANGES = 10
"""Changes on a page, and pairs; `-v` shows all."""

NEEDS = {"training": "from scratch", "continued": "continued training", "none": "nothing"}


def page(answer: Advise, *, model: str = "", hw: str = "", verbose: bool = False) -> Page:
    """The model as it is, its changes, and what is known of their price in quality. model, hw: as typed."""
    options = answer.options
    context = int(str(options["input_len"])) + int(str(options["output_len"]))
    head = (
        f"What would help {answer.model.name} on {answer.hardware.name}",
        f"{context:,} tokens of context, batch {options.get('batch', 1)} · ranked by {answer.objective}",
    )
    known_here = [name for name in COLUMNS if answer.base.values.get(name) is not None]
    names = [name for name in known_here if verbose or name in (*MAIN, RANKED[answer.objective][0])]
    most = None if verbose else MOST_CHANGES
    changes = [*[a for a in answer.changes if not a.by_bound][:most], *[a for a in answer.changes if a.by_bound][:most]]
    sections = [_base(answer.base, answer.price), *_groups("Change", changes, answer.base, names)]
    if answer.pairs:
        sections += _groups("Two at once", answer.pairs[:most], answer.base, names)
    if len(changes) < len(answer.changes):
        sections.append(
            _left_out(len(answer.changes) - len(changes), [COLUMNS[n] for n in known_here if n not in names])
        )
    known = load_caveats()
    choices = dict.fromkeys(a.change.choice for a in changes if a.change.choice in known)
    sections.append(
        facts("Published findings on quality", [(known[name].choice, known[name].text) for name in choices])
    )
    if answer.refused:
        sections.append(facts("Not possible", answer.refused))
    if hw and (best := _best(answer)):
        sections.append(_next(answer, best, model, hw))
    return Page(head=head, sections=tuple(sections))


def _left_out(changes: int, columns: Sequence[str]) -> Section:
    """What `-v` adds."""
    more = f", and what all do to {', '.join(columns)}" if columns else ""
    return Section(title="", below=(f"`-v` shows {changes} more changes, further down the ranking{more}",))


def _base(base: Figures, price: Price | None) -> Section:
    """The model as it is."""
    lines = [
        ("TPOT", f"{1e3 * (base.values['tpot_s'] or 0):,.2f} ms, {1e3 * base.low_s:,.2f} to {1e3 * base.high_s:,.2f}")
    ]
    lines.append(("TTFT", f"{1e3 * (base.values['ttft_s'] or 0):,.1f} ms"))
    lines += [(COLUMNS[name], format_bytes(base.values[name] or 0)) for name in ("kv_bytes", "memory_bytes")]
    if price is not None:
        lines.append(("price", price.in_words))
    if not base.fits:
        lines.append(("fits", "no: the requests need more memory than there is"))
    return facts("As it is", lines)


def _groups(title: str, changes: Iterable[Advice], base: Figures, names: list[str]) -> list[Section]:
    """The changes that times rank, and apart from them those that bounds rank."""
    groups: dict[bool, list[Advice]] = {False: [], True: []}
    for advice in changes:
        groups[advice.by_bound].append(advice)
    timed = [_changes(title, groups[False], base, names)] if groups[False] else []
    return timed + ([_by_bound(title, groups[True], base, names)] if groups[True] else [])


def _changes(title: str, changes: Sequence[Advice], base: Figures, names: list[str]) -> Section:
    """One line for each change: what every measure becomes, over what it was."""
    missing = {advice.figures.missing for advice in changes if advice.kernel}
    below = [f"kernel: {_not_measured(name)}, so its times are unreliable" for name in sorted(missing)]
    return _table(title, changes, base, {name: COLUMNS[name] for name in names}, below)


def _by_bound(title: str, changes: Sequence[Advice], base: Figures, names: list[str]) -> Section:
    """One line for each change that its bound ranks: bounds in place of times and dollars."""
    shown = {"tpot_ideal_s": "TPOT bound", **{name: COLUMNS[name] for name in names if name not in TIMED}}
    classes = {base.missing, *(advice.figures.missing for advice in changes)} - {""}
    below = [f"{_not_measured(name)}: the lines are ranked by the bound of TPOT" for name in sorted(classes)]
    return _table(f"{title}, by bound", changes, base, shown, below)


def _not_measured(kernel_class: str) -> str:
    return f"no `{kernel_class}` kernel, or one engine's alone, was measured on this device"


def _table(
    title: str, changes: Iterable[Advice], base: Figures, shown: Mapping[str, str], below: Iterable[str]
) -> Section:  # fmt: skip
    """Changes by measures. shown: measures and the titles of their columns."""
    return Section(
        title=title, rows=tuple(_line(advice, base, list(shown)) for advice in changes),
        header=(*shown.values(), "needs", ""), align="l" + "r" * len(shown) + "ll", below=tuple(below), wrap=False,
    )  # fmt: skip


def _line(advice: Advice, base: Figures, names: list[str]) -> Row:
    ratios = advice.ratios(base)
    kernel = advice.kernel and not advice.by_bound
    marks = [word for word, holds in (("kernel", kernel), ("does not fit", not advice.figures.fits)) if holds]
    return row(
        advice.change.name, *(_percent(ratios[name]) for name in names), NEEDS[advice.change.needs], ", ".join(marks)
    )  # fmt: skip


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return ""
    change = 100 * (ratio - 1)
    return "0 %" if abs(change) < 0.05 else f"{change:+,.0f} %" if abs(change) >= 9.95 else f"{change:+,.1f} %"


def _best(answer: Advise) -> Advice | None:
    """The best change that helps and fits, of those that times rank if there is one; where none fits, the best that
    helps.
    """
    helps = [advice for advice in answer.changes if advice.gain > 0]
    return next((advice for advice in helps if advice.figures.fits), helps[0] if helps else None)


def _next(answer: Advise, best: Advice, model: str, hw: str) -> Section:
    """The best change as a command."""
    again = command_line("estimate", model, hw=hw, **{**answer.options, **best.change.options})
    sets = "".join(f" --set {shlex.quote(text)}" for text in best.change.sets)
    why = "the best change by its bound" if best.by_bound else "the best single change"
    return try_section([(again + sets, why if best.figures.fits else f"{why}, which does not fit either")])


def rows(answer: Advise) -> list[dict[str, object]]:
    """One flat row for each change."""
    return [
        {"change": a.change.name, "needs": a.change.needs, "kernel": a.kernel, "gain": a.gain,
         **cast("dict[str, object]", a.figures.to_dict())}
        for a in (*answer.changes, *answer.pairs)
    ]  # fmt: skip
