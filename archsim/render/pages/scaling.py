"""`archsim scaling` as a page: every law that applies beside the others."""

from __future__ import annotations

from archsim.base.amounts import short_amount
from archsim.base.json_types import JsonObject
from archsim.render.page import Cell, Page, Row, Section, facts, percent, row
from archsim.training.budget import Budget
from archsim.training.scaling import Asked, LawAnswer, Scaling, factor_text

LOSS = (
    "Loss is in nats per token of a law's own text and tokenizer: it compares shapes under one law, not laws with each "
    "other or with a model card."
)

BEYOND = "Beyond its runs: by how much the parameters (N) or tokens (D) lie outside the runs that a law was fitted to."
LETTERS = {"parameters": "N", "tokens": "D", "epochs": "epochs"}


def page(answer: Scaling) -> Page:
    """The question, the spread of the laws, and one row for each."""
    sections = [_optima(answer)]
    if answer.asked.run is not None:
        sections.append(_runs(answer))
    if answer.asked.inference_tokens is not None:
        sections.append(_served(answer))
    if answer.asked.budget is not None:
        sections.append(_budget(answer.asked.budget))
    if answer.refused:
        sections.append(facts("Not evaluated", [(name, reason) for name, reason in answer.refused]))
    return Page(head=head(answer), sections=tuple(sections))


def head(answer: Scaling) -> tuple[str, ...]:
    """What was asked, the first law's answer, and how far the laws are apart."""
    first = answer.answers[0]
    shape = first.optimum if first.served is None else first.served.shape
    line = (
        f"{first.name}: {short_amount(shape.params)} parameters on {short_amount(shape.tokens)} tokens, "
        f"{shape.tokens_per_param:,.0f} tokens per parameter"
    )
    if len(answer.answers) > 1:
        (low, high), (few, many) = answer.spread()["params"], answer.spread()["tokens"]
        line += (
            f"; all laws below: {short_amount(low)} to {short_amount(high)} parameters, "
            f"{short_amount(few)} to {short_amount(many)} tokens"
        )
    return (title(answer.asked), line)


def title(asked: Asked) -> str:
    """The question in words."""
    run = asked.run
    if run is not None:
        text = f"{short_amount(run.params)} parameters on {short_amount(run.tokens)} tokens, {run.flops:.3g} FLOP"
    elif asked.compute is not None:
        text = f"Compute-optimal training with {asked.compute:.3g} FLOP"
    elif asked.params is not None:
        text = f"Compute-optimal training of {short_amount(asked.params)} parameters"
    else:
        text = f"Compute-optimal training on {short_amount(asked.tokens or 0.0)} tokens"
    if asked.inference_tokens is not None:
        text += f", with {short_amount(asked.inference_tokens)} tokens served"
    if asked.unique_tokens is not None:
        text += f", where there are {short_amount(asked.unique_tokens)} different tokens"
    return text


def _optima(answer: Scaling) -> Section:
    rows = tuple(_optimum(one) for one in answer.answers)
    header = ("parameters", "tokens", "per parameter", "FLOP", "loss", "beyond its runs")
    below = [LOSS]
    if answer.warnings:
        below.append(BEYOND)
    counted = [one.name for one in answer.answers if one.law.params_counted != "all"]
    if counted:
        below.append(f"{', '.join(counted)} counts parameters without embeddings.")
    epochs = [f"{one.epochs:,.1f} epochs under {one.name}" for one in answer.answers if one.epochs is not None]
    below += [f"The tokens are seen for {text}." for text in epochs]
    return Section(title="Optimum of", rows=rows, align="lrrrrrl", header=header, below=tuple(below))


def _optimum(one: LawAnswer) -> Row:
    shape = one.optimum
    return row(
        one.name, short_amount(shape.params), short_amount(shape.tokens), f"{shape.tokens_per_param:,.1f}",
        f"{shape.flops:.3g}", _loss(one.loss), Cell(_beyond(one), "note"),
    )  # fmt: skip


def _beyond(one: LawAnswer) -> str:
    """How far beyond the runs of a law the answer lies: `N 4.5x, D 2.7x`."""
    return ", ".join(f"{LETTERS[what]} {factor_text(factor)}" for what, factor in one.outside.items())


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


def _runs(answer: Scaling) -> Section:
    rows = []
    for one in answer.answers:
        lost = "" if one.run_loss is None or one.loss is None else f"{one.run_loss - one.loss:+.4f}"
        times = one.run_tokens_over_optimal or 0.0
        rows.append(row(one.name, _loss(one.run_loss), lost, f"{times:.3g}x"))
    header = ("loss", "above the optimum", "tokens over the optimal ones")
    return Section(title="This run", rows=tuple(rows), align="lrrr", header=header)


def _served(answer: Scaling) -> Section:
    rows = []
    for one in answer.answers:
        if one.served is not None:
            shape, saving = one.served.shape, percent(one.served.saving)
            flops = (f"{shape.flops:.3g}", f"{one.served.served_flops:.3g}")
            rows.append(row(one.name, short_amount(shape.params), short_amount(shape.tokens), *flops, saving))
    header = ("parameters", "tokens", "FLOP to train", "to serve", "saved")
    of = "this run" if answer.asked.run is not None else "the optimum"
    below = (f"The same loss as {of} with least compute in training and serving; saved: of what {of} takes for both.",)
    return Section(title="With serving", rows=tuple(rows), align="lrrrrr", header=header, below=below)


def _budget(money: Budget) -> Section:
    return facts("Budget", [
        ("dollars", f"{money.usd:,.0f}"),
        ("device", f"{money.hardware.name}, at {money.price.in_words}"),
        ("device hours", f"{money.device_hours:,.0f}"),
        ("compute", f"{money.flops:.3g} FLOP at {percent(money.mfu)} of the dense bf16 peak"),
    ])  # fmt: skip


def bare(answer: Scaling) -> str:
    """Law, parameters and tokens, one law a line."""
    shapes = [(one.name, one.optimum if one.served is None else one.served.shape) for one in answer.answers]
    return "".join(f"{name} {shape.params:.4g} {shape.tokens:.4g}\n" for name, shape in shapes)


def rows(answer: Scaling) -> list[JsonObject]:
    """One flat row for each law."""
    from archsim.render.flat import flatten

    return [flatten(one.to_dict()) for one in answer.answers]
