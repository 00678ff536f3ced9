"""Where a page takes plotly.js from: in the file, from a copy beside it, or from plotly's own servers.

Each way comes with what the page's policy has to allow, and nothing more: the script is named by its hash where the
browser checks one.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import OutputRefused, UsageError
from archsim.base.output_file import check_output, write_text

Source = Literal["inline", "directory", "cdn"]
SOURCES: tuple[Source, ...] = ("inline", "directory", "cdn")

NAME = "plotly.min.js"
"""The copy beside pages of `directory`."""


class Script(NamedTuple):
    """A script element of a page: its text or its address, the hash that the browser checks, and what the policy
    allows for it.
    """

    text: str = ""
    url: str = ""
    integrity: str = ""
    allowed: str = ""


def plotly_script(source: Source) -> Script:
    """The element that loads plotly.js."""
    if source == "directory":
        return Script(url=NAME, allowed="'self' file:")  # browsers hold a file's own folder for no origin
    found = _digest()
    if source == "cdn":
        url = f"https://cdn.plot.ly/plotly-{_version()}.min.js"
        return Script(url=url, integrity=found, allowed=url)
    return Script(text=source_text(), allowed=f"'{found}'")


def digest(text: str) -> str:
    """The hash of a script as policies and `integrity` name it."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def source_text() -> str:
    """The text of plotly.js as plotly for Python ships it."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@lru_cache(maxsize=1)
def _digest() -> str:
    return digest(source_text())


def _version() -> str:
    from plotly.offline import get_plotlyjs_version

    return str(get_plotlyjs_version())


def check_source(name: str) -> Source:
    """One of the ways by its name. Raises UsageError."""
    for source in SOURCES:
        if name == source:
            return source
    raise UsageError(f"unknown way to load plotly.js: {quote(name)}", hints=(f"one of {', '.join(SOURCES)}",))


def check_page(page: Path | str | None, source: Source, *, force: bool = False) -> None:
    """Refuses a page that could not be written, before the work for it is done. page: None for stdout.

    Raises OutputRefused, UsageError.
    """
    check_output(page, force=force)
    if source == "directory":
        if page is None:
            raise UsageError("`--plotlyjs directory` goes with a file", hints=("`inline` or `cdn` for stdout",))
        _missing_copy(Path(page))


def write_page(page: Path | str, text: str, source: Source, *, force: bool = False) -> None:
    """Writes a page, and with `directory` plotly.js beside it unless it is there.

    Raises OutputRefused, OutputFailure.
    """
    copy = _missing_copy(Path(page)) if source == "directory" else None
    if copy is not None:
        write_text(copy, source_text())
    write_text(page, text, force=force)


def _missing_copy(page: Path) -> Path | None:
    """The place of plotly.js beside a page, where it has still to be written; None where it is there.

    Raises OutputRefused where another file has its name.
    """
    path = page.parent / NAME
    if not path.exists():
        return path
    if path.is_file() and path.read_bytes() == source_text().encode():
        return None
    raise OutputRefused(
        f"{quote(path.name)} next to the page is another version of plotly.js, or no plotly.js",
        hints=("move it away, or write the page into another folder", "`--plotlyjs inline` needs no copy"),
    )
