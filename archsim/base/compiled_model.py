"""pydantic's class of a `LazyModel`: it validates, dumps and describes, and makes instances of the model itself."""

from __future__ import annotations

from inspect import get_annotations
from types import new_class
from typing import Any, Literal, cast

import pydantic
from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from archsim.base.lazy_model import VALIDATES, FieldRule, LazyModel


def compiled(cls: type[LazyModel]) -> type[BaseModel]:
    """The class, ready to validate."""
    made = pydantic_class(cls)
    made.model_rebuild()
    return made


def pydantic_class(cls: type[LazyModel]) -> type[BaseModel]:
    """The class, whose validators are built when they are first needed: fields may be of classes that hold this one."""
    if cls not in _CLASSES:
        _CLASSES[cls] = _pydantic_class(cls)
    return _CLASSES[cls]


_CLASSES: dict[type[LazyModel], type[BaseModel]] = {}
"""Those that were made so far."""


def _pydantic_class(cls: type[LazyModel]) -> type[BaseModel]:
    bases = tuple(pydantic_class(base) for base in cls.__bases__ if issubclass(base, LazyModel))
    stated = get_annotations(cls)
    namespace: dict[str, object] = {
        "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
        "__annotations__": {name: stated[name] for name in cls.own_fields}, "model_config": cls.model_config,
        "__get_pydantic_core_schema__": classmethod(_making(cls)),
    }  # fmt: skip
    for name, default in cls.own_fields.items():
        if default is not ...:
            namespace[name] = default.info() if isinstance(default, FieldRule) else default
    for name, method in vars(cls).items():
        if (validates := getattr(method, VALIDATES, None)) is not None:
            namespace[name] = _validator(*validates)(method)
    return cast(
        "type[BaseModel]", new_class(cls.__name__, bases or (BaseModel,), {}, lambda own: own.update(namespace))
    )


def _validator(of: str, argument: str) -> Any:
    """pydantic's decorator of a method that validates a field, or a whole document."""
    if of == "field":
        return pydantic.field_validator(argument)
    return pydantic.model_validator(mode=cast('Literal["before", "after"]', argument))


def _making(cls: type[LazyModel]) -> Any:
    """The hook by which pydantic asks the class for its schema, which is told to make instances of another class."""

    def schema(_: type[BaseModel], source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        made = handler(source)
        inner: Any = handler.resolve_ref_schema(made)
        while inner["type"] != "model":
            inner = inner["schema"]
        inner["cls"] = cls
        return made

    return schema
