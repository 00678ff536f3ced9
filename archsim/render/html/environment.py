"""The one place where text becomes HTML: jinja2 templates that escape whatever they are given."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from archsim.base.diagnostics import inert, shorten

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

SENTENCE = 600
"""Characters of a note, title or warning that are shown."""

FOLDER = Path(__file__).with_name("templates")


class Macro(Protocol):
    """An element of `parts.html.j2`."""

    def __call__(self, *arguments: object, **named: object) -> str:
        """The HTML, everything inside escaped but what is `Markup` already."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with their filters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    found = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=False,
        keep_trailing_newline=False, auto_reload=False,
    )  # fmt: skip
    found.filters |= {"text": bounded, "prose": prose, "markup": Markup}
    found.globals["parts"] = found.get_template("parts.html.j2").module
    return found


def bounded(value: object, limit: int = SENTENCE) -> str:
    """Text from outside on one line, printable and bounded; not yet escaped."""
    return shorten(inert(str(value)[: limit + 1]), limit)


def prose(value: object, limit: int = SENTENCE) -> Markup:
    """Bounded text as HTML, with what stands in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(bounded(value, limit)))))


CODE = re.compile(r"`([^`]+)`")
"""A command, option or key in a sentence."""


def part(name: str) -> Macro:
    """One element of pages, as HTML that can be joined with other HTML."""
    macro: Macro = getattr(environment().globals["parts"], name)

    def plain(*arguments: object, **named: object) -> str:
        return str.__str__(macro(*arguments, **named))

    return plain


def ready(html: str) -> str:
    """HTML that is made already, for a template not to escape again."""
    from markupsafe import Markup

    return Markup(html)


def file_text(name: str) -> str:
    """A file that stands beside the templates."""
    return (FOLDER / name).read_text("utf-8").strip() + "\n"


def render(name: str, **values: object) -> str:
    """A whole document."""
    return environment().get_template(name).render(**values).rstrip("\n") + "\n"
