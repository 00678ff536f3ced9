"""Errors as people read them: a headline, a frame that shows the place, notes, and what to do next.

Text from files and command lines is untrusted: whatever is printed here has its control characters escaped and its
length bounded, so it can neither move the cursor, nor recolour the terminal, nor forge a second message.
"""

from __future__ import annotations

import re
import unicodedata

from archsim.base.errors import ArchsimError, Span

MAX_WORD = 200
MAX_LINE = 4000
FRAME_WIDTH = 200
MOST_LINES = 9
"""Lines of a message; what does not fit is counted."""
_RED, _CYAN, _BOLD, _RESET = "\x1b[1;31m", "\x1b[36m", "\x1b[1m", "\x1b[0m"


def inert(text: str) -> str:
    """`text` on one line, with everything that is not printable shown as an escape such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def inert_json(text: str) -> str:
    """JSON `text` in which everything that is not printable is a `\\u` escape; what it says stays the same."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def shorten(text: str, limit: int = MAX_WORD) -> str:
    """`text` cut to at most `limit` characters, the last one an ellipsis where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote(name: object, limit: int = 80) -> str:
    """A name from outside, safe to put into a message: inert, bounded, between backticks."""
    return f"`{shorten(inert(str(name)[: limit + 1]), limit)}`"


def render(error: ArchsimError, colour: bool = False, width: int | None = None) -> str:
    """The complete message for a terminal, without a newline at the end.

    Plain text; with `colour`, ANSI codes on the headline, the frame and the hints. Every coloured fact is
    also said in words. width: columns that the quoted line may take.
    """
    paint = _paint if colour else _plain
    title = f"error[{error.code}]" if error.shows_code else "error"
    lines = [f"{paint(title + ':', _RED)} {paint(_line(error.message), _BOLD)}"]
    if error.details:
        lines += ["", *_block(error.details)]
    if error.span is not None:
        lines += _frame(error.span, error.label, colour, width)
    hints = _hints(error, colour, MOST_LINES - len(lines) - bool(error.notes))
    lines += _notes(error, colour, MOST_LINES - len(lines) - len(hints))
    return "\n".join(lines + hints)


def _hints(error: ArchsimError, colour: bool, room: int) -> list[str]:
    """What to do next, below an empty line: at least two lines of it, as many as there is room for."""
    paint = _paint if colour else _plain
    found: list[str] = []
    for hint in error.hints:
        first, *rest = _block(hint) or [""]
        found += [f"{paint('hint:', _CYAN)} {first}", *rest]
    most = max(room - 1, 2)
    if len(found) > most and not error.details:  # the hints of an answer are a table
        found = [*found[: most - 1], f"{found[most - 1]} (and {len(found) - most:,} more)"]
    return ["", *found] if found else []


def _plain(text: str, _code: str) -> str:
    return text


def _paint(text: str, code: str) -> str:
    return f"{code}{text}{_RESET}"


def _line(text: str) -> str:
    """One bounded, inert line: absurdly long words are cut one by one, so that the rest stays readable."""
    text = re.sub(rf"\S{{{MAX_WORD + 1},}}", lambda m: shorten(m.group()), text[: 100 * MAX_LINE])
    return shorten(inert(text), MAX_LINE)


def _block(text: str) -> list[str]:
    return [_line(line) for line in text.split("\n")]


def _notes(error: ArchsimError, colour: bool, room: int) -> list[str]:
    """The notes: as many as there is room for, at least one, and how many more there are."""
    paint = _paint if colour else _plain
    shown = [_line(note) for note in error.notes[: max(room, 1)]]
    left = sum(_how_many(note) for note in error.notes[len(shown) :])
    if left:
        shown[-1] = f"and {left + _how_many(shown[-1]):,} more" if len(shown) > 1 else f"{shown[-1]}; and {left:,} more"
    if error.span is None:
        return [f"{paint('note:', _CYAN)} {note}" for note in shown]
    gutter = " " * (len(str(error.span.line)) + 1)
    bar, equals = paint("|", _CYAN), paint("= note:", _CYAN)
    head = [f"{gutter}{bar}"] if shown and len(shown) < room else []
    return [*head, *(f"{gutter}{equals} {note}" for note in shown)]


def _how_many(note: str) -> int:
    """Findings in a note: one, or those of `and N more`."""
    counted = re.fullmatch(r"and ([\d,]+) more", note)
    return int(counted[1].replace(",", "")) if counted else 1


def _frame(span: Span, label: str, colour: bool, width: int | None) -> list[str]:
    paint = _paint if colour else _plain
    number = str(span.line)
    gutter, bar = " " * len(number), paint("|", _CYAN)
    room = FRAME_WIDTH if width is None else min(FRAME_WIDTH, width - len(number) - len(" | ……"))
    text, pad, carets = _window(span, room)
    mark = paint(f"{'^' * carets} {_line(label)}".rstrip(), _RED)
    return [
        f"{gutter}{paint('-->', _CYAN)} {_line(span.file)}:{span.line}:{span.column}",
        f"{gutter} {bar}",
        f"{paint(number, _CYAN)} {bar} {text}".rstrip(),
        f"{gutter} {bar} {' ' * pad}{mark}",
    ]


def _window(span: Span, room: int) -> tuple[str, int, int]:
    """The part of the line that `room` characters show, and the display columns before and under the carets."""
    text = "".join(" " if c == "\t" else c if c.isprintable() else "\ufffd" for c in span.text)
    start = min(max(span.column - 1, 0), len(text))
    stop = min(start + max(span.length, 1), max(len(text), start + 1))
    if len(text) > room:
        left = max(0, min(start - room // 4, len(text) - room))
        right = left + room
        lead, tail = "…" if left else "", "…" if right < len(text) else ""
        text = lead + text[left:right] + tail
        start, stop = start - left + len(lead), min(stop, right) - left + len(lead)
    return text, _width(text[:start]), max(1, _width(text[start:stop]))


def _width(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
