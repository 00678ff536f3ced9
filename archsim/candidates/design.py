"""`archsim design`: the best spec for a device, a context and a budget."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

from archsim.base.amounts import amount
from archsim.base.errors import UsageError
from archsim.base.options import DesignArguments
from archsim.base.ranges import parse_range
from archsim.base.units import parse_quantity
from archsim.candidates.answer import Design, answer_of
from archsim.candidates.base_spec import spec_like, usual_spec
from archsim.candidates.openings import openings
from archsim.candidates.question import OUTPUT, Limits, Question, TrainingBudget, objective
from archsim.candidates.search import search
from archsim.candidates.space import Rules, Space, axes_of, checked_names
from archsim.candidates.structure import structures
from archsim.cost.price_choice import choose_price
from archsim.counts.workload import Workload
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.one_look import one_look
from archsim.training.budget import budget
from archsim.training.laws import DEFAULT_LAW, law_named

CONTEXT = 8192
"""Tokens of a request, prompt and answer, where none are asked for."""

ANYTHING = 10_000
"""Query heads of a key/value head where any number is allowed."""


def design(hardware: Hardware, like: Model | None = None, **options: object) -> Design:
    """The best spec for a device within limits.

    like: a model whose norms, positions, activations and tables candidates have. options: see
    `archsim.base.options.DesignArguments`. Raises UsageError for what is no limit, range or objective.
    """
    given = cast(DesignArguments, options)
    question = _question(hardware, given)
    base = usual_spec() if like is None else spec_like(like)
    spaces = _spaces(given)
    start = time.perf_counter()
    with one_look():
        found = search(question, base, spaces, given.get("sample"))
        seconds = time.perf_counter() - start
        return answer_of(question, found, seconds, lambda: openings(question, base, spaces, given.get("sample"), found))


def request_lengths(context: int | None, asked: Mapping[str, object]) -> dict[str, int]:
    """Prompt and answer of a request that fills a context. Raises UsageError where there is no room for a prompt."""
    output = int(str(asked.get("output_len", OUTPUT)))
    whole = CONTEXT if context is None else context
    if whole <= output:
        raise UsageError(f"a context of {whole:,} tokens leaves no prompt before an answer of {output:,}")
    return {"input_len": whole - output, "output_len": output}


def _question(hardware: Hardware, given: DesignArguments) -> Question:
    training = _training(hardware, given)
    lengths = request_lengths(given.get("context"), cast(Mapping[str, object], given))
    usual = ("loss", "tpot", "memory") if training is not None else ("params", "tpot", "memory")
    price = given.get("price")
    engine = choose_engine(given.get("engine", DEFAULT_ENGINE))
    return Question(
        hardware=hardware, engine=engine, weights=_several(given.get("weights")) or (None,),
        kv_cache_dtype=given.get("kv_cache_dtype"), limits=_limits(given), training=training,
        load=Workload(batch=given.get("batch", 1), **lengths),
        objectives=tuple(dict.fromkeys(objective(word) for word in _several(given.get("objective")) or usual)),
        price=None if price is None else choose_price(price, hardware).price,
    )  # fmt: skip


def _limits(given: DesignArguments) -> Limits:
    def quantity(name: str, unit: str) -> float | None:
        value = cast(Mapping[str, object], given).get(name)
        return None if value is None else float(parse_quantity(value, unit))

    return Limits(
        tpot_s=quantity("tpot", "s"), ttft_s=quantity("ttft", "s"), memory_bytes=quantity("memory", "B"),
        params=_between(given.get("params"), "params"), active=_between(given.get("active"), "active"),
        sure=given.get("sure", False),
    )  # fmt: skip


def _between(text: str | float | None, name: str) -> tuple[float, float] | None:
    """From one number of parameters to another: `6B-8B`; of one number, what is within 5 % of it. Raises UsageError."""
    if text is None:
        return None
    low, dash, high = str(text).partition("-")
    first = amount(low, f"number of parameters (`--{name}`)")
    if not dash:
        return 0.95 * first, 1.05 * first
    last = amount(high, f"number of parameters (`--{name}`)")
    if last < first:
        raise UsageError(f"`--{name} {text}` ends below its start", hints=(f"write `--{name} {high}-{low}`",))
    return first, last


def _training(hardware: Hardware, given: DesignArguments) -> TrainingBudget | None:
    flops, tokens, dollars = given.get("train_flops"), given.get("tokens"), given.get("train_usd")
    if sum(x is not None for x in (flops, tokens, dollars)) > 1:
        raise UsageError("a training budget is FLOP, dollars or tokens", hints=("give one of them",))
    if flops is None and tokens is None and dollars is None:
        return None
    name = given.get("law", DEFAULT_LAW)
    law = law_named(name)
    if law.loss is None:
        raise UsageError(f"{name} gives no loss of any shape", hints=(f"`--law {DEFAULT_LAW}` does",))
    compute = amount(flops, "amount of FLOP") if flops is not None else None
    rent = None
    if dollars is not None:
        rent = budget(amount(dollars, "sum of money"), cast(Hardware, given.get("train_hw", hardware)))
        compute = rent.flops
    return TrainingBudget(
        name=name, law=law, flops=compute, rent=rent,
        tokens=None if tokens is None else amount(tokens, "number of tokens"),
        extrapolate=given.get("extrapolate", False),
    )  # fmt: skip


def _spaces(given: DesignArguments) -> list[Space]:
    vary, fix = _assigned(given.get("vary", ()), "vary"), _assigned(given.get("fix", ()), "fix")
    for names, option in ((vary, "vary"), (fix, "fix")):
        checked_names(names, option)
    for name in fix:
        if len(parse_range(str(fix[name]), f"fix {name}")) > 1:
            raise UsageError(f"`--fix {name}` has several values", hints=(f"`--vary {name}={fix[name]}`",))
    chosen = structures(_several(given.get("attention")) or ("full",), _several(given.get("ffn")) or ("dense",))
    rules = Rules(shared=ANYTHING) if given.get("allow_mqa") else Rules()
    return [Space(structure=structure, axes=axes_of(structure, vary, fix), rules=rules) for structure in chosen]


def _assigned(given: str | Sequence[str] | Mapping[str, object], option: str) -> dict[str, object]:
    """`FIELD=VALUES` as a mapping."""
    if isinstance(given, Mapping):
        return dict(given)
    found: dict[str, object] = {}
    for text in [given] if isinstance(given, str) else given:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"`--{option}` wants FIELD=VALUES, not `{text[:60]}`",
                             hints=(f"such as `--{option} d_model=4096`",))  # fmt: skip
        found[name.strip()] = values.strip()
    return found


def _several(given: str | Sequence[str | None] | None) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else [part for part in given or () if part]
    return tuple(part.strip() for part in parts if part and part.strip())
