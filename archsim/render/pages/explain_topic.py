"""What a topic of `archsim explain` is: an error code, a term, or a quantity of a model."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archsim.base.diagnostics import quote
from archsim.base.errors import EXPLAIN, NoSuchName, UsageError, did_you_mean
from archsim.base.json_types import JsonObject
from archsim.base.notes import NOTES
from archsim.render.glossary import SYNONYMS, TERMS

if TYPE_CHECKING:
    from archsim.explanation.formulas import Explanation
    from archsim.predict.estimate import Estimate
    from archsim.render.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A paragraph about a code or a term."""

    name: str
    kind: str
    text: str

    def page(self) -> Page:
        """The paragraph as a page."""
        from archsim.render.pages.explain import text_page

        return text_page(self.name, self.text)

    def to_dict(self) -> JsonObject:
        """The `archsim.explain/1` object."""
        return {"schema": "archsim.explain/1", "topic": self.name, "kind": self.kind, "text": self.text}


def look_up(text: str) -> Topic | None:
    """The code or term that a topic names, if it names one."""
    code = text.strip().upper()
    if code in EXPLAIN:
        return Topic(name=code, kind="error code", text=EXPLAIN[code])
    if code in NOTES:
        return Topic(name=code, kind="assumption" if code[0] == "A" else "warning", text=NOTES[code])
    term = code.lower()
    term = SYNONYMS.get(term, term)
    if term in TERMS:
        return Topic(name=term, kind="term", text=TERMS[term])
    return None


def formula(
    topic: Sequence[str], *, context: int, weights: str | None, changes: tuple[str, ...], hw: str | None
) -> tuple[Explanation, Estimate | None]:
    """The explanation of a model's quantity, and the estimate behind a decode time where a device is given.

    Raises UnknownName for a topic that is none.
    """
    from archsim.explanation.formulas import QUANTITIES, explain
    from archsim.importers.opening import load_model

    name, *rest = topic
    try:
        model = load_model(name, changes)
    except NoSuchName as error:
        raise _unknown_topic(name, error) from None
    if len(rest) != 1:
        asked = f"one of {', '.join(QUANTITIES)}"
        raise UsageError(
            f"what about {quote(name)}?", hints=(f"give {asked}, such as `archsim explain {name} params`",)
        )
    if context < 1:
        raise UsageError(f"`--context-len` must be positive, not {context}")
    answer = explain(model, rest[0], context, weights)
    if hw is None or answer.quantity != "decode":
        return answer, None
    from archsim.predict.estimate import estimate
    from archsim.spec.load import load_hardware

    device = load_hardware(hw)
    return answer, estimate(model, device, weights=weights, input_len=max(context - 1, 1), output_len=2)


def _unknown_topic(name: str, error: NoSuchName) -> NoSuchName:
    """The complaint about a topic, with the closest terms and models."""
    known = [*EXPLAIN, *NOTES, *TERMS, *SYNONYMS]
    close = difflib.get_close_matches(name[:100].lower(), known, n=1, cutoff=0.6)
    hints = (*did_you_mean(error.close), TOPICS) if close else (TOPICS,)
    return NoSuchName(f"nothing to explain about {quote(name)}", close=close or error.close, hints=hints)


TOPICS = "a topic is a model and a quantity, an error code such as `E103`, or a term such as `tpot`"
