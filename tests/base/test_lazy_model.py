"""Models that pydantic compiles late: plain classes until something is validated, pydantic's results after."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import pytest

from archsim.base.lazy_model import Check, Field, LazyModel, field_validator, model_validator

ROOT = Path(__file__).parents[2]
Size = Annotated[int, Field(strict=True, gt=0)]


class Part(LazyModel):
    """A part that may hold parts."""

    size: Size = 3
    name: Annotated[str, Check("before", str), Check("after", str.upper)] = "x"
    parts: tuple[Part, ...] = ()
    as_: str | None = Field(default=None, alias="as")

    @model_validator(mode="after")
    def _small(self) -> Part:
        if self.size > 100:
            raise ValueError("too large")
        return self


class Pair(Part):
    """A part with a required one beside it."""

    second: Part
    third: Part = Part.model_construct(size=5)
    lines: dict[str, float] = Field(default_factory=dict)
    kind: Literal["a", "b"] = "a"

    @field_validator("lines")
    @classmethod
    def _named(cls, lines: dict[str, float]) -> dict[str, float]:
        return {"first": 1.0, **lines}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"second": value} if isinstance(value, str) else value


def pair(**fields: object) -> Pair:
    """A valid pair with other values."""
    return Pair.model_validate({"second": {"size": 2, "parts": [{"size": 4}]}, "as": "q", **fields})


def test_what_is_made_are_instances_of_the_class() -> None:
    """Of a document, of what it holds, and of a class that holds itself; validators and defaults included."""
    made = pair(lines={"second": 2}, name=7)
    assert (type(made), type(made.second), type(made.second.parts[0])) == (Pair, Part, Part)
    assert (made.name, made.as_, made.third.size, made.lines) == ("7", "q", 5, {"first": 1.0, "second": 2.0})
    assert made.model_fields_set == {"second", "as_", "lines", "name"}
    assert Part(size=8, as_="z") == Part.model_validate({"size": 8, "as": "z"})


@pytest.mark.parametrize(
    ("fields", "kind", "place"),
    [
        ({"size": 0}, "greater_than", ("size",)),
        ({"size": "3"}, "int_type", ("size",)),
        ({"size": 101}, "value_error", ()),
        ({"kind": "c"}, "literal_error", ("kind",)),
        ({"other": 1}, "extra_forbidden", ("other",)),
        ({"second": {"parts": [{}, {"size": -1}]}}, "greater_than", ("second", "parts", 1, "size")),
        ({"second": None}, "model_type", ("second",)),
    ],
)
def test_errors_are_those_of_pydantic(fields: dict[str, object], kind: str, place: tuple[str | int, ...]) -> None:
    """With their place, whichever class the value stands in."""
    with pytest.raises(pydantic.ValidationError) as caught:
        pair(**fields)
    assert [(error["type"], error["loc"]) for error in caught.value.errors()] == [(kind, place)]


def test_dumps_and_schemas_are_those_of_pydantic() -> None:
    """Names or aliases, stated fields alone, JSON; and a schema that names the classes as they are called."""
    made = pair()
    assert made.model_dump(by_alias=True, exclude_unset=True) == {
        "second": {"size": 2, "parts": ({"size": 4},)},
        "as": "q",
    }
    assert made.model_dump(mode="json", include={"kind"}) == {"kind": "a"}
    again = pydantic.TypeAdapter(Pair).validate_json(made.model_dump_json())
    assert (again.second.parts[0].size, again.as_, again.third) == (4, "q", made.third.model_copy(update={"name": "X"}))
    schema = Pair.model_json_schema()
    assert schema["$defs"].keys() == {"Part"} and schema["required"] == ["second"]
    assert schema["$defs"]["Part"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert schema["description"] == Pair.__doc__


def test_in_a_model_of_pydantic() -> None:
    """A program's own model may hold one."""

    class Own(pydantic.BaseModel):
        """A model of a program that uses archsim."""

        part: Part

    part = Part(size=9)
    assert Own(part=part).part is part and Own.model_validate({"part": {"size": 9}}).part == part
    assert Own(part=part).model_dump()["part"]["size"] == 9


def test_copies_are_equal_and_frozen() -> None:
    """By value, through pickle and with changed fields; what is no field stays with copies and is not compared."""
    made = pair()
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made.model_copy() == made
    assert hash(Part(size=1)) == hash(Part(size=1)) and Part() != Pair.model_construct(second=Part())
    carried = made.model_copy(update={"size": 9, "_beside": 1}).model_copy()
    assert (carried.size, vars(carried)["_beside"], "size" in carried.model_fields_set) == (9, 1, True)
    assert carried == made.model_copy(update={"size": 9}) and "_beside" not in carried.model_dump()
    with pytest.raises(AttributeError, match="frozen"):
        made.size = 4  # type: ignore[misc]


def test_known_values_need_no_pydantic() -> None:
    """Classes and instances of valid values are made without it; `given` says which fields were stated."""
    assert Part.model_construct({"name"}, size=2).model_fields_set == {"name"}
    code = (
        "import sys; from archsim.base.lazy_model import *\n"
        "class A(LazyModel):\n  n: int = Field(default=2, gt=1)\n"
        "assert A.model_construct().n == 2 and A.model_construct() == A.model_construct(n=2).model_copy()\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_validators_of_pydantic_itself_are_refused() -> None:
    """They would not run: the class says so when it is made."""
    with pytest.raises(TypeError, match=r"Wrong\.size is made by pydantic"):

        class Wrong(LazyModel):
            """A class with a field of pydantic."""

            size: int = pydantic.Field(gt=0)
