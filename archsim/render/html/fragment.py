"""A page as a piece of HTML inside another document: what a notebook shows below a cell."""

from __future__ import annotations

from html import escape

from archsim.render.html.markup import name_of, paragraph, safe
from archsim.render.html.page import section_html
from archsim.render.page import Page

STYLE = """
.archsim{max-width:70rem;line-height:1.4;color:inherit}
.archsim h1{font-size:1.2em;margin:.4em 0 .2em}.archsim h2{font-size:1em;margin:.9em 0 .2em}
.archsim h3{font-size:.95em;margin:.6em 0 .2em}.archsim p{margin:.15em 0}.archsim .scroll{overflow-x:auto}
.archsim table{border-collapse:collapse;margin:0;font-variant-numeric:tabular-nums}
.archsim th,.archsim td{padding:.12em .7em .12em 0;border:0;text-align:right;background:none;white-space:nowrap}
.archsim tbody th,.archsim .l,.archsim .words{text-align:left;font-weight:400}
.archsim .words{white-space:normal;max-width:46rem}.archsim tr.sub th{padding-left:1em}
.archsim .dim{opacity:.7}.archsim .title{font-weight:600}.archsim .good{color:#00795a}
.archsim .bad{color:#c0392b;font-weight:600}.archsim .note{color:#a86a00}
.archsim td.meter svg{display:block;width:11rem;height:.8em}.archsim td.meter rect{fill:#3b78c2}
"""
"""The look of everything inside, and of nothing outside; text has the colour of the document around it."""


def fragment(page: Page) -> str:
    """The page without a document around it; nothing in it is run, loaded or styled from outside."""
    title, *rest = page.head
    lines = [*rest, *(f"Note: {note}" for note in page.notes)]
    told = "".join(paragraph(line) for line in lines)
    body = "".join(section_html(section) for section in page.sections)
    return f'<div class="archsim"><style>{STYLE}</style>\n<h1>{safe(name_of(title, 200))}</h1>\n{told}{body}</div>\n'


def frame(document: str, title: str) -> str:
    """A whole document in a frame of its own, whose script reaches nothing outside it."""
    return (
        f'<iframe title="{safe(title)}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:48rem;border:0" srcdoc="{escape(document, quote=True)}"></iframe>\n'
    )
