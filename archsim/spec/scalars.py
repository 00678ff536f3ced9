"""Plain YAML scalars to values: the YAML 1.2 core schema, without the traps of YAML 1.1.

Spellings that the two versions read differently are refused with advice instead of being read in one of the
ways. Dates stay text.
"""

from __future__ import annotations

import math
import re

from archsim.base.diagnostics import quote
from archsim.base.errors import InvalidValue

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_YES = frozenset(("yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
_NO = frozenset(("no", "No", "NO", "off", "Off", "OFF", "n", "N"))
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_PREFIXED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NON_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_BINARY = re.compile(r"[-+]?0b[01_]+")
_SEPARATED = re.compile(r"[-+]?[0-9][0-9]*(?:_[0-9]+)+(?:\.[0-9_]*)?")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_NUMBER_START = frozenset("+-.0123456789")
_MAX_DIGITS = 100


def plain(text: str) -> object:
    """The value of an unquoted scalar: None, a bool, an int, a finite float or the text itself.

    Raises InvalidValue (E107) for spellings that YAML 1.1 reads differently, and (E102) for numbers without end.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text in _YES or text in _NO:
        meaning = "true" if text in _YES else "false"
        raise _trap(text, f'a boolean in YAML 1.1 and text in YAML 1.2: write `{meaning}`, or `"{text}"` for the text')
    if text[0] in _NUMBER_START:
        return _number(text)
    return text


def key(text: str) -> object:
    """The value of an unquoted mapping key: an int where it is written as one, else the text."""
    return int(text) if len(text) < _MAX_DIGITS and _INT.fullmatch(text) else text


def _number(text: str) -> object:
    if _INT.fullmatch(text):
        return int(_check_bounds(text))
    if _OCTAL.fullmatch(text):
        digits = text.lstrip("+-0") or "0"
        raise _trap(text, f'octal in YAML 1.1: write `{digits}` without leading zeros, or `"{text}"` for the text')
    if _FLOAT.fullmatch(text):
        value = float(_check_bounds(text))
        if math.isfinite(value):
            return value
        raise _endless(text)
    if _NON_FINITE.fullmatch(text):
        raise _endless(text)
    if _PREFIXED.fullmatch(text):
        return int(_check_bounds(text), 0)
    return _check_text(text)


def _check_text(text: str) -> str:
    """Text that starts like a number, unless YAML 1.1 would make a number of it."""
    if _SEXAGESIMAL.fullmatch(text):
        raise _trap(text, f'a base-60 number in YAML 1.1: write `"{text}"` for the text, or a decimal number')
    if _SEPARATED.fullmatch(text):
        raise _trap(text, f"a number in YAML 1.1 and text in YAML 1.2: write `{text.replace('_', '')}`")
    if _BINARY.fullmatch(text):
        raise _trap(text, f'a binary number in YAML 1.1: write it in decimal, or `"{text}"` for the text')
    return text


def _check_bounds(text: str) -> str:
    if len(text) > _MAX_DIGITS:
        raise InvalidValue(f"a number of {len(text):,} characters", label="too long for a number")
    return text


def _trap(text: str, label: str) -> InvalidValue:
    return InvalidValue(f"{quote(text)} is ambiguous", code="E107", label=label)


def _endless(text: str) -> InvalidValue:
    return InvalidValue(f"{quote(text)} is not a finite number", label="leave the field out if there is no limit")
