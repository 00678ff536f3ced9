"""Data classes whose methods are shared functions, but for `__init__`: the standard library compiles six methods for
every frozen class, which is a tenth of the time in which a command starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, cast

__all__ = ["dataclass", "light_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import dataclass as light_dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        """As `dataclasses.dataclass`, in what it takes and in what it means."""
        return (lambda own: _made(own, frozen, eq, options)) if cls is None else _made(cls, frozen, eq, options)

    def light_dataclass(*, frozen, eq, **options):
        """The same for classes that a command makes hundreds of thousands of: `frozen` is checked by the type checker
        alone, since an instance that refuses changes takes three times as long to make.
        """
        return lambda own: _made(own, False, eq, options)


def _made(cls: type, frozen: bool, eq: bool, options: dict[str, bool]) -> type:
    stated = {name for name in ("__repr__", "__eq__", "__hash__") if vars(cls).get(name) is not None}
    made: Any = dataclasses.dataclass(init=not frozen, repr=False, eq=False, **options)(cls)
    fields = dataclasses.fields(made)
    methods: dict[str, object] = {"__repr__": _repr}
    if eq:
        made._compared = _getter([f.name for f in fields if f.compare])
        made._hashed = _getter([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__init__": _init(made), "__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": _state, "__setstate__": _set_state} if options.get("slots") else {}
    for name in methods.keys() - stated:
        setattr(made, name, methods[name])
    return cast(type, made)


def _init(cls: type) -> Callable[..., None]:
    """The constructor of a frozen class: it sets fields past the class's own refusal."""
    known: dict[str, object] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    plain: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        name = value = field.name
        known["_of_" + name], made = field.default, field.default_factory is not dataclasses.MISSING
        if made:
            known["_of_" + name], known["_make_" + name] = dataclasses.MISSING, field.default_factory
            value = f"_make_{name}() if {name} is _missing else {name}" if field.init else f"_make_{name}()"
        if field.init:
            optional = made or field.default is not dataclasses.MISSING
            (named if field.kw_only else plain).append(f"{name}=_of_{name}" if optional else name)
        elif not made and field.default is not dataclasses.MISSING:
            value = "_of_" + name
        if value != name or field.init:
            slot = vars(cls).get(name)
            if isinstance(slot, MemberDescriptorType):  # set by its slot, in two thirds of the time
                known["_set_" + name] = slot.__set__
                body.append(f"_set_{name}(self, {value})")
            else:
                body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    given = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    exec(f"def __init__({given}):\n " + "\n ".join(body or ["pass"]), known)
    init: Callable[..., None] = known["__init__"]  # type: ignore[assignment]
    init.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _getter(names: list[str]) -> Callable[[object], object]:
    return attrgetter(*names) if names else staticmethod(lambda _: ())


def _repr(self: object) -> str:
    fields = dataclasses.fields(self)  # type: ignore[arg-type]
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: object, other: object) -> object:
    if type(other) is not type(self):
        return NotImplemented
    compared: Callable[[object], object] = type(self)._compared  # type: ignore[attr-defined]
    return compared(self) == compared(other)


def _hash(self: object) -> int:
    return hash(type(self)._hashed(self))  # type: ignore[attr-defined]


def _refuse(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: object) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]


def _set_state(self: object, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):  # type: ignore[arg-type]
        object.__setattr__(self, field.name, value)
