"""`archsim diff` as a page: its tables, then both architectures as drawings with a ≠ where they differ."""

from __future__ import annotations

from archsim.evolution.diff import Difference
from archsim.render.html.drawings import diagrams
from archsim.render.html.environment import part
from archsim.render.html.page import html_document, section_html
from archsim.render.page import Page
from archsim.spec.model import Model


def document(answer: Difference, page: Page) -> str:
    """The page; without drawings where there is no difference to mark."""
    title, *lines = page.head
    tables = "".join(section_html(section) for section in page.sections)
    drawn = "" if answer.same else part("heading")(2, "Architectures") + diagrams(_named_apart(answer))
    return html_document(title, [*lines, *(f"Note: {note}" for note in page.notes)], tables + drawn)


def _named_apart(answer: Difference) -> list[Model]:
    """Both models; a model and its own variant are told apart."""
    a, b = answer.a, answer.b
    return [a, b if b.name != a.name else b.model_copy(update={"name": f"{b.name}, the second"})]
