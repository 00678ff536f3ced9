"""Ranges of whole numbers as the command line spells them: `1,8,32`, `1-256+1` (step), `1-256*2` (factor)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError

MOST = 1_000_000
"""Values of one axis at most."""

LARGEST = 2**40
"""No axis goes beyond: products of such numbers are still exact enough in double precision."""

PART = re.compile(r"([0-9]{1,15})([kKmM]?)(?:-([0-9]{1,15})([kKmM]?)(?:([+*])([0-9]{1,15})([kKmM]?))?)?")
"""One part between commas: a number, `first-last`, `first-last+step` or `first-last*factor` (llama-bench's grammar)."""

SCALE = {"": 1, "k": 1024, "m": 1024**2}


def parse_range(text: str | int | Iterable[int], name: str) -> tuple[int, ...]:
    """The values of a range in ascending order, each once. name: of the option, for messages.

    Lengths may be written `32k` (x 1024). A number or a list of numbers is taken as it is. Raises UsageError.
    """
    if isinstance(text, str):
        values = [value for part in text.split(",") for value in _part(part.strip(), name)]
    else:
        values = _numbers(text, name)
    if len(values) > MOST:
        raise _too_many(name)
    found = tuple(sorted(set(values)))
    if not found or found[0] < 1:
        raise UsageError(f"`--{name}` must be positive whole numbers, not {quote(text)}")
    if found[-1] > LARGEST:
        raise UsageError(f"`--{name}` goes to {found[-1]:,}; the largest number taken is {LARGEST:,}")
    return found


def _numbers(values: int | Iterable[int], name: str) -> list[int]:
    """Numbers that are no text."""
    listed = [values] if isinstance(values, int) else list(values)
    for value in listed:
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"`--{name}` must be positive whole numbers, not {value!r}")
    return listed


def _part(text: str, name: str) -> Iterator[int]:
    """The values of what stands between two commas."""
    match = PART.fullmatch(text)
    if text.startswith("-") and text[1:].isdecimal():
        raise UsageError(f"`--{name}` must be positive whole numbers, not {quote(text)}")
    if match is None:
        raise UsageError(
            f"`--{name}`: {quote(text)} is no range",
            hints=("write `1,8,32`, `1-256+1` (step) or `1-256*2` (factor); 32k means x 1024",),
        )
    first, last, step = (_number(*match.group(i, i + 1)) for i in (1, 3, 6))
    if first is None or last is None:
        return iter((first or 0,))
    if last < first:
        raise UsageError(f"`--{name}`: {quote(text)} goes down; write the smaller end first")
    sign, step = match[5] or "+", 1 if step is None else step
    if step < 1 or (sign == "*" and (step < 2 or first < 1)):
        raise UsageError(
            f"`--{name}`: {quote(text)} never ends: a step is at least 1, a factor at least 2 on a positive number"
        )
    return _steps(first, last, sign, step, name)


def _number(digits: str | None, unit: str | None) -> int | None:
    return None if digits is None else int(digits) * SCALE[(unit or "").lower()]


def _steps(first: int, last: int, sign: str, step: int, name: str) -> Iterator[int]:
    """From first to last by steps or by a factor; last is among them only if a step meets it."""
    if sign == "+":
        if (last - first) // step >= MOST:
            raise _too_many(name)
        return iter(range(first, last + 1, step))
    values = [first]
    while values[-1] * step <= last:
        values.append(values[-1] * step)
    return iter(values)


def _too_many(name: str) -> UsageError:
    return UsageError(f"`--{name}` has more than {MOST:,} values", hints=("take a larger step",))
