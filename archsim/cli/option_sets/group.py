"""Options that belong together as one parameter of a command: a data class whose fields are the options.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Rent:
        price: Price = None
        years: Years = None

    def estimate(model: Model, *, rent: Rent, json: AsJson = False) -> None: ...

typer reads a flat signature, so `flat` makes one; the command is called with the groups made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, signature
from typing import Any, get_type_hints


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every group of options in place of the group, in the order of its fields."""
    own = signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: param.annotation for name, param in own.parameters.items() if is_dataclass(param.annotation)
    }
    if not groups:
        return command
    flattened: list[Parameter] = []
    for name, param in own.parameters.items():
        flattened += _options(groups[name]) if name in groups else [param.replace(kind=Parameter.KEYWORD_ONLY)]

    def call(**given: object) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    call.__doc__, call.__name__ = command.__doc__, command.__name__
    call.__signature__ = own.replace(parameters=flattened)  # type: ignore[attr-defined]
    call.__annotations__ = {param.name: param.annotation for param in flattened}
    return call


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]
