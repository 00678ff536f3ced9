"""A command line word by word, before it is parsed: which option each belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from archsim.base.errors import UsageError


class CommandLineError(UsageError):
    """An option or argument that no command takes, or that is missing."""

    shows_code = False


class TypedWord(NamedTuple):
    """An option as it was typed with its value, or an argument. param: what the command calls it; None for neither."""

    param: Any
    flag: str
    value: str
    args: tuple[str, ...]


def words(command: Any, args: Sequence[str]) -> Iterator[TypedWord]:
    """The words of `args`, as `command` takes them. An option that it does not know stands alone."""
    known = {flag: param for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        param = known.get(flag)
        if not word.startswith("-") or word == "-":
            yield TypedWord(None, "", word, (word,))
        elif param is None or equals or getattr(param, "is_flag", False) or not rest:
            yield TypedWord(param, flag, value, (word,))
        else:
            value = rest.pop(0)
            yield TypedWord(param, flag, value, (word, value))


def takes_several(param: Any) -> bool:
    """Whether an option says that it takes a list or a range."""
    return param is not None and any(sign in (param.metavar or "") for sign in (",", "RANGE"))
