"""Models that pydantic sees only when something has to be validated: building its classes takes longer than a command
that reads documents which were validated before.

A class is written as for pydantic, with `Field`, `model_validator` and the like of this module. It is a plain class
with plain instances; pydantic's class is made of it the first time a value is validated, dumped or described.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from inspect import get_annotations
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, cast, dataclass_transform

from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
    from pydantic.fields import FieldInfo
    from pydantic_core import CoreSchema, SchemaSerializer

Method = TypeVar("Method")


class FieldRule:
    """What a field takes beyond its type: the arguments of `pydantic.Field`. Also in `Annotated`."""

    __is_annotated_types_grouped_metadata__: Literal[True] = True
    __slots__ = ("arguments",)

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    def __iter__(self) -> Iterator[object]:
        yield self.info()

    def info(self) -> FieldInfo:
        """As pydantic has it."""
        import pydantic

        info: FieldInfo = pydantic.Field(**self.arguments)
        return info

    def default(self) -> object:
        """The value of a field that is not given; `...` where it must be."""
        make = self.arguments.get("default_factory")
        return make() if make is not None else self.arguments.get("default", ...)


def Field(  # noqa: N802 - spelt as in pydantic
    *,
    default: object = ...,
    default_factory: Callable[[], object] | None = None,
    alias: str | None = None,
    **limits: float | str | bool,
) -> Any:
    """A field's default, its name in files, and its limits, each as `pydantic.Field` calls them."""
    stated: dict[str, object] = {} if default is ... else {"default": default}
    stated |= {} if default_factory is None else {"default_factory": default_factory}
    return FieldRule(stated | ({} if alias is None else {"alias": alias}) | limits)


class Check:
    """In `Annotated`: a function that a value passes before or after its type is validated."""

    __is_annotated_types_grouped_metadata__: Literal[True] = True
    __slots__ = ("function", "mode")

    def __init__(self, mode: Literal["before", "after"], function: Callable[[Any], object]) -> None:
        self.mode, self.function = mode, function

    def __iter__(self) -> Iterator[object]:
        from pydantic import AfterValidator, BeforeValidator

        yield (BeforeValidator if self.mode == "before" else AfterValidator)(self.function)


def model_validator(*, mode: Literal["before", "after"]) -> Callable[[Method], Method]:
    """Marks a method that checks a whole document: the mapping before, or the instance after its fields."""
    return _marked("model", mode)


def field_validator(field: str) -> Callable[[Method], Method]:
    """Marks a class method that checks one field."""
    return _marked("field", field)


def _marked(of: str, argument: str) -> Callable[[Method], Method]:
    def mark(method: Method) -> Method:
        setattr(method, VALIDATES, (of, argument))
        return method

    return mark


GIVEN = "__pydantic_fields_set__"
"""Where pydantic keeps the names of the fields that were stated."""
VALIDATES = "lazy_validator"
"""The attribute of a method that says what it validates."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class LazyModel:
    """Base of documents: frozen, and every unknown field is an error. What is called as in pydantic does the same."""

    __slots__ = ("__dict__", "__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__", "__weakref__")

    model_config: ClassVar[ConfigDict] = {
        "frozen": True, "extra": "forbid", "populate_by_name": True, "defer_build": True,
    }  # fmt: skip
    own_fields: ClassVar[Mapping[str, object]] = {}
    """Fields that the class itself states, with their defaults: a value, a rule, or `...` for none."""
    all_fields: ClassVar[Mapping[str, object]] = {}
    """Those of its bases, and its own."""

    def __init_subclass__(cls) -> None:
        foreign = [name for name, value in vars(cls).items() if type(value).__module__.startswith("pydantic")]
        if foreign:
            raise TypeError(f"{cls.__name__}.{foreign[0]} is made by pydantic; `{__name__}` has the same, made later")
        stated = get_annotations(cls)
        names = [name for name, text in stated.items() if name[0] != "_" and not str(text).startswith("ClassVar")]
        cls.own_fields = {name: cls.__dict__.get(name, ...) for name in names}
        for name in cls.own_fields.keys() & cls.__dict__.keys():
            delattr(cls, name)
        fields: dict[str, object] = {}
        for base in reversed(cls.__mro__):
            fields |= vars(base).get("own_fields", {})
        cls.all_fields = fields

    def __init__(self, **fields: Any) -> None:
        _compiled(type(self)).__pydantic_validator__.validate_python(fields, self_instance=self)

    @classmethod
    def model_construct(cls, given: set[str] | None = None, /, **fields: Any) -> Self:
        """An instance of values that are known to be valid, and the defaults of other fields.

        given: fields that count as stated; by default those with a value here.
        """
        values = {name: fields[name] if name in fields else _default(of) for name, of in cls.all_fields.items()}
        stated = set(fields) if given is None else given
        return cls._of({name: value for name, value in values.items() if value is not ...}, stated)

    @classmethod
    def default_of(cls, name: str) -> object:
        """What a field is where nothing states it; None for one that has to be stated, and for what is no field."""
        found = _default(cls.all_fields.get(name))
        return None if found is ... else found

    @classmethod
    def _of(cls, values: dict[str, object], given: Set[str]) -> Self:
        """An instance of the values of all fields."""
        made = object.__new__(cls)
        made.__setstate__((values, set(given)))
        return made

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """The instance that a mapping describes. Raises `pydantic.ValidationError`."""
        made: Self = _compiled(cls).__pydantic_validator__.validate_python(value)
        return made

    @classmethod
    def model_json_schema(cls) -> JsonObject:
        """What a mapping must be like."""
        return _compiled(cls).model_json_schema()

    @classmethod
    def field_infos(cls) -> Mapping[str, FieldInfo]:
        """The fields as pydantic describes them."""
        return _compiled(cls).model_fields

    @property
    def model_fields_set(self) -> set[str]:
        """Fields that were stated, not left at their defaults."""
        given: set[str] = object.__getattribute__(self, GIVEN)
        return given

    def model_copy(self, *, update: Mapping[str, object] | None = None) -> Self:
        """A copy with other values of some fields, which are not validated. A name that begins with an underscore is no
        field: what it holds stays with copies, and is neither compared nor dumped.
        """
        changes, own = update or {}, self.__dict__
        values = {name: value for name, value in own.items() if name in self.all_fields or name[0] == "_"}
        return self._of({**values, **changes}, self.model_fields_set | (changes.keys() & self.all_fields.keys()))

    def model_dump(
        self,
        *,
        mode: Literal["python", "json"] = "python",
        include: set[str] | None = None,
        by_alias: bool = False,
        exclude_unset: bool = False,
        exclude_none: bool = False,
    ) -> JsonObject:
        """The document as a mapping."""
        made: JsonObject = self.__pydantic_serializer__.to_python(
            self, mode=mode, include=include, by_alias=by_alias, exclude_unset=exclude_unset, exclude_none=exclude_none
        )
        return made

    def model_dump_json(self) -> str:
        """The document as JSON."""
        return self.__pydantic_serializer__.to_json(self).decode()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: `model_copy(update=...)` makes another one")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        """Of all but its mappings, which have none: equal documents have equal ones."""
        return hash(tuple([value for value in _values(self) if not isinstance(value, Mapping)]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self.all_fields)})"

    def __getstate__(self) -> tuple[dict[str, object], Set[str]]:
        return self.__dict__, self.model_fields_set

    def __setstate__(self, state: tuple[dict[str, object], Set[str]]) -> None:
        fill = object.__setattr__
        fill(self, "__dict__", state[0])
        fill(self, GIVEN, state[1])
        fill(self, "__pydantic_extra__", None)
        fill(self, "__pydantic_private__", None)

    @property
    def __pydantic_serializer__(self) -> SchemaSerializer:
        """What pydantic dumps it by, wherever it stands."""
        return _compiled(type(self)).__pydantic_serializer__

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_pydantic_class(cls))


def _values(model: LazyModel) -> list[object]:
    return [model.__dict__.get(name, ...) for name in model.all_fields]


def _default(stated: object) -> object:
    return stated.default() if isinstance(stated, FieldRule) else stated


def _compiled(cls: type[LazyModel]) -> type[BaseModel]:
    """pydantic's class of a model, ready to validate."""
    made = _pydantic_class(cls)
    made.model_rebuild()
    return made


def _pydantic_class(cls: type[LazyModel]) -> type[BaseModel]:
    """pydantic's class, whose validators are built later: a field may be of a class that holds this one."""
    if cls not in _CLASSES:
        _CLASSES[cls] = _new_class(cls)
    return _CLASSES[cls]


_CLASSES: dict[type[LazyModel], type[BaseModel]] = {}
"""Those that were made so far."""


def _new_class(cls: type[LazyModel]) -> type[BaseModel]:
    from pydantic import BaseModel

    bases = tuple(_pydantic_class(base) for base in cls.__bases__ if issubclass(base, LazyModel))
    stated = get_annotations(cls)
    namespace: dict[str, object] = {
        "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
        "__annotations__": {name: stated[name] for name in cls.own_fields}, "model_config": cls.model_config,
        "__get_pydantic_core_schema__": _maker(cls),
    }  # fmt: skip
    for name, default in cls.own_fields.items():
        if default is not ...:
            namespace[name] = default.info() if isinstance(default, FieldRule) else default
    for name, method in vars(cls).items():
        if (validates := getattr(method, VALIDATES, None)) is not None:
            namespace[name] = _validator(*validates)(method)
    made = new_class(cls.__name__, bases or (BaseModel,), {}, lambda own: own.update(namespace))
    return cast("type[BaseModel]", made)


def _validator(of: str, argument: str) -> Callable[[Any], object]:
    """pydantic's decorator of a method that validates a field, or a whole document."""
    import pydantic

    if of == "field":
        return pydantic.field_validator(argument)
    return pydantic.model_validator(mode=cast("Literal['before']", argument))


def _maker(cls: type[LazyModel]) -> object:
    """The hook by which pydantic asks its class for a schema: what is made by it are instances of the plain class."""

    def schema(_: type[BaseModel], source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        made = handler(source)
        inner: Any = handler.resolve_ref_schema(made)
        while inner["type"] != "model":
            inner = inner["schema"]
        inner["cls"] = cls
        return made

    return classmethod(schema)
