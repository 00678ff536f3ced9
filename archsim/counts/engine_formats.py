"""Which engine runs a model in its weight format: the one that is asked for, or the one that such files imply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName, UsageError
from archsim.base.notes import Note
from archsim.engines.names import DEFAULT_ENGINE, engine_and_version
from archsim.spec.engine import Engine, load_engine
from archsim.spec.format import FormatSpec, load_format
from archsim.spec.model import Model

_SIGNS = re.compile(r"[*+=@\s]+")
"""What joins the names in a format that is put together from others (`3*q4_k+5*q6_k`)."""


class RunsOn(NamedTuple):
    """The engine as `--engine` takes it, why it is this one, and what of the checkpoint it has no kernels for."""

    engine: str
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()


def engine_for(model: Model, weights: str | None, engine: str = DEFAULT_ENGINE) -> RunsOn:
    """The engine that runs the model in a weight format (None: its own). Where no engine is named, files that are made
    for one engine (GGUF, EXL2) imply that one.

    Raises UsageError (E121) for a format that is asked for and that the named engine does not run.
    """
    asked = None if weights in (None, "auto") else str(weights)
    name, version = engine_and_version(engine)
    specs = [load_format(asked)] if asked else list(_stored_in(model))
    made_for = next((spec.engine for spec in specs if spec.engine), "")
    if name == DEFAULT_ENGINE:
        return _implied(made_for, asked or "GGUF") if made_for else RunsOn(engine)
    rules = load_engine(name, version)
    strange = next((spec for spec in specs if not _reads(rules, spec)), None)
    if strange is None or (strange.name in model.weights.values() and asked):
        return RunsOn(engine)
    if asked:
        raise _cannot_run(rules, strange)
    text = f"{rules.title} does not read {strange.name} checkpoints: the times are those of such a format all the same"
    return RunsOn(
        engine, warnings=(Note("W10", f"{text}; `--weights {rules.formats.weights[0]}` is one that it runs"),)
    )


def _implied(name: str, weights: str) -> RunsOn:
    """The engine that files in a format are made for, with the reason."""
    title = load_engine(name).title
    text = f"{weights} weights imply {title}, whose memory and kernels are used; `--engine` for another"
    return RunsOn(name, (Note("A28", text),))


def _stored_in(model: Model) -> Iterator[FormatSpec]:
    """The formats that a checkpoint is stored in, parts of composed ones too."""
    for text in dict.fromkeys(model.weights.values()):
        for word in _SIGNS.split(text):
            try:
                yield load_format(word)
            except UnknownName:  # a number of copies, a label or whole bits
                continue


def _reads(rules: Engine, spec: FormatSpec) -> bool:
    """Whether an engine runs weights in a format."""
    if spec.plain or spec.engine == rules.name:
        return True
    if spec.engine:
        return spec.engine in rules.formats.files_of
    return not rules.formats.own_files_alone or spec.name in rules.formats.native


def _cannot_run(rules: Engine, spec: FormatSpec) -> UsageError:
    """Why an engine does not run a format, and what it does run."""
    runs = ", ".join(rules.formats.weights)
    hints = [f"{rules.title} runs {runs}, for example: `--weights {rules.formats.weights[0]}`"]
    if spec.engine:
        other = load_engine(spec.engine)
        hints.append(f"such files are made for {other.title}: `--engine {other.name}`")
    return UsageError(f"{rules.title} does not run {quote(spec.name)} weights", code="E121", hints=hints)
