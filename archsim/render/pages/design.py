"""`archsim design` as a page: the best spec, the plateau around it, the front, and what lost."""

from __future__ import annotations

from collections.abc import Mapping

from archsim.base.amounts import short_amount
from archsim.base.units import format_bytes, format_count
from archsim.candidates.answer import Candidate, Design, Plateau
from archsim.candidates.caveats import load_caveats
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Page, Row, Section, facts, plural, row

FIGURES = ("params", "loss", "tpot_s", "ttft_s", "memory_bytes", "kv_bytes", "usd_per_m_output")

TITLES = {
    "params": "parameters", "loss": "loss", "tpot_s": "TPOT", "ttft_s": "TTFT", "memory_bytes": "memory",
    "kv_bytes": "cache", "usd_per_m_output": "$ per M output",
}  # fmt: skip

SIZES = ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff", "params")

MOST_LINES = 12
"""Lines of the front on a page; `-v` shows all that the answer has."""


def page(answer: Design, *, hw: str = "", written: str = "", verbose: bool = False) -> Page:
    """The answer. hw: as typed, and written: the file of the best spec; both empty where no command asked."""
    best, searched = answer.best, answer.found.searched
    looked = f"{searched.combinations:,} combinations, {searched.legal:,} models, {searched.fit:,} in memory"
    head = (title(answer), f"{looked}, {searched.priced:,} estimated")
    if best is None:
        return Page(head=head, notes=answer.warnings)
    sections = [_best(answer, best)]
    if answer.plateau is not None:
        sections.append(_plateau(answer.plateau))
    sections.append(_front(answer, len(answer.front) if verbose else MOST_LINES))
    lost = tuple(row(neighbour.change, neighbour.reason) for neighbour in answer.neighbours)
    sections.append(Section(title="One step away", rows=lost, align="ll", wrap=False))
    known = load_caveats()
    unknown = [(known[name].choice, known[name].text) for name in best.choices if name in known]
    sections.append(facts("Not in the numbers", unknown))
    sections.append(facts("Basis", [("assumed", text) for text in answer.assumptions]))
    if hw:
        sections.append(_next(answer, best, hw, written))
    return Page(head=head, notes=answer.warnings, sections=tuple(sections))


def title(answer: Design) -> str:
    """The question in a line."""
    question, load = answer.question, answer.question.load
    said = [f"{load.input_len + load.output_len:,} tokens of context"]
    if load.batch > 1:
        said.append(f"batch {load.batch:,}")
    limits = question.limits
    said += [f"{name} at most {1e3 * s:,.6g} ms" for name, s in (("TPOT", limits.tpot_s), ("TTFT", limits.ttft_s)) if s]
    if question.training is not None and question.training.flops is not None:
        said.append(f"trained with {question.training.flops:.3g} FLOP")
    elif question.training is not None:
        said.append(f"trained on {short_amount(question.training.tokens or 0.0)} tokens")
    return f"The best spec for one {question.hardware.name}: {', '.join(said)}"


def _best(answer: Design, best: Candidate) -> Section:
    """The winner: its sizes and figures."""
    figures = best.figures
    lines = [
        ("structure", best.structure), ("sizes", best.label), ("weights", best.weights),
        ("parameters", format_count(int(figures["params"] or 0))),
    ]  # fmt: skip
    if figures["active"] != figures["params"]:
        lines.append(("active", format_count(int(figures["active"] or 0))))
    if figures["loss"] is not None and answer.loss_range is not None:
        low, high = answer.loss_range
        tokens = short_amount(figures["tokens"] or 0.0)
        lines.append(("loss", f"{figures['loss']:.4f} nats on {tokens} tokens; all laws {low:.2f} to {high:.2f}"))
    lines += [(TITLES[name], text) for name in FIGURES[2:] if (text := _figure(figures, name))]
    near = [f"{name} ({100 * distance:,.0f} %)" for name, distance in answer.known]
    if near:
        lines.append(("nearest known", f"{', '.join(near)}: the largest difference of a size"))
    return facts("Best", lines)


def _figure(figures: Mapping[str, float | None], name: str) -> str:
    """A figure in its unit; empty where there is none."""
    value = figures.get(name)
    if value is None:
        return ""
    if name == "loss":
        return f"{value:.4f}"
    if name == "params":
        return format_count(int(value))
    if name.endswith("_s"):
        return f"{1e3 * value:,.2f} ms"
    return format_bytes(value) if name.endswith("_bytes") else f"{value:,.4g}"


def _plateau(plateau: Plateau) -> Section:
    """How wide the region is that the law cannot tell apart, and which of it is best otherwise."""
    sizes = [
        name for name in plateau.ranges if name in ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff", "params")
    ]
    rows = [row(TITLES.get(name, name), _range(name, plateau.ranges[name])) for name in sizes]
    rows += [row(TITLES[name], _range(name, plateau.ranges[name])) for name in ("tpot_s", "memory_bytes", "kv_bytes")]
    rows += [row(f"least {TITLES[name]}", f"{one.label}: {_figure(one.figures, name)}")
             for name, one in plateau.first.items()]  # fmt: skip
    below = ("differences of the loss this small are below what a law resolves: choose among these by the rest",)
    return Section(
        title="Plateau", rows=tuple(rows), align="ll", below=below, wrap=False,
        aside=f"{plural(plateau.count, 'spec')} within 0.005 nats",
    )  # fmt: skip


def _range(name: str, ends: tuple[float, float]) -> str:
    low, high = (
        (_figure({name: end}, name) if name in TITLES else f"{int(end):,}") for end in ends
    )  # fmt: skip
    return low if low == high else f"{low} to {high}"


def _front(answer: Design, most: int) -> Section:
    """The candidates that none beats in every objective."""
    names = [objective.name for objective in answer.question.objectives]
    names = list(dict.fromkeys(["params", *names]))
    rows = tuple(_line(candidate, names) for candidate in answer.front[:most])
    below = [f"{answer.front_size:,} on the front; {len(rows):,} shown"] if len(rows) < answer.front_size else []
    return Section(
        title="Front", rows=rows, header=("structure", *(TITLES[name] for name in names)),
        align="ll" + "r" * len(names), below=tuple(below), wrap=False,
    )  # fmt: skip


def _line(candidate: Candidate, names: list[str]) -> Row:
    numbers = candidate.numbers
    kv = f"/{numbers['n_kv_heads']}" if "n_kv_heads" in numbers else ""
    width = numbers.get("d_ff") or f"{numbers.get('n_experts')}x{numbers.get('d_expert')}, top {numbers.get('top_k')}"
    sizes = f"{numbers['n_layers']} x {numbers['d_model']}, {numbers['n_heads']}{kv} heads, {width}"
    return row(sizes, candidate.structure, *(_figure(candidate.figures, name) for name in names))


def _next(answer: Design, best: Candidate, hw: str, written: str) -> Section:
    """What to run with the best spec."""
    load = answer.question.load
    spec = written or "best.yaml"
    again: dict[str, object] = {"hw": hw, "devices": 1, "input_len": load.input_len, "output_len": load.output_len,
                                "weights": best.weights}  # fmt: skip
    said = "the same figures, with their parts"
    lines = [(command_line("estimate", spec, **again), said if written else f"{said}; `--out {spec}` writes the spec")]
    return try_section(lines)


def rows(answer: Design) -> list[dict[str, object]]:
    """One flat row for each candidate of the front."""
    return [{"structure": c.structure, "weights": c.weights, **c.numbers, **c.figures} for c in answer.front]
