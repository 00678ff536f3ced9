"""JSON Schema of the documents, for editors and other programs.

They are generated from the specs and then widened by what the loader accepts beyond them: layers and variants
are merged before they are validated, so in a file they may be partial.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, make_folder, write_text

BASE = "https://json-schema.org/draft/2020-12/schema"
KINDS = ("model", "hardware", "system", "format", "engine")

Schema = JsonObject


def schema(kind: str) -> Schema:
    """The JSON Schema of one kind of document. Raises UnknownName for another kind."""
    makers: dict[str, Callable[[], Schema]] = {
        "model": _model, "hardware": _hardware, "system": _system, "format": _format,
        "engine": _engine,
    }  # fmt: skip
    if kind not in makers:
        raise UnknownName(f"no schema named {quote(kind)}", hints=(f"known: {', '.join(KINDS)}",))
    return {"$schema": BASE, "title": f"archsim {kind} document", **_sort_definitions(makers[kind]())}


def _sort_definitions(made: Schema) -> Schema:
    made.pop("title", None)
    definitions = made.pop("$defs", {})
    return {**made, "$defs": dict(sorted(definitions.items()))}


def _format() -> Schema:
    from archsim.spec.format import FormatSpec

    return FormatSpec.model_json_schema()


def _engine() -> Schema:
    from archsim.spec.engine import Engine

    made = Engine.model_json_schema()
    memory = made["$defs"]["EngineMemoryRules"]
    required = memory.pop("required")
    memory["anyOf"] = [{"required": ["as"]}, {"required": required}]
    return made


# ---------------------------------------------------------------------- models
def _model() -> Schema:
    from archsim.blocks.dispatch import KINDS as FAMILIES
    from archsim.blocks.dispatch import load_kind
    from archsim.spec.model import Model

    made = Model.model_json_schema()
    definitions: Schema = made["$defs"]
    for family, kinds in FAMILIES.items():
        for kind in kinds:
            cls = load_kind(family, kind)
            own = cls.model_json_schema()
            definitions |= own.pop("$defs", {})
            definitions[cls.__name__] = own
    for name in list(definitions):
        definitions[name] = _partial(definitions[name], name in _block_names())
    for family in FAMILIES:
        definitions[_partial_name(family)] = _without_kind(family, definitions)
    _open_families(made, definitions)
    return _extendable(made)


def _block_names() -> set[str]:
    from archsim.blocks.dispatch import KINDS as FAMILIES
    from archsim.blocks.dispatch import class_names

    return {name for family in FAMILIES for name in class_names(family)}


def _partial(made: Schema, block: bool) -> Schema:
    """A definition whose fields may come from a mapping underneath; a block keeps its `kind`, which tells it apart."""
    kept = {key: value for key, value in made.items() if key != "required"}
    return {**kept, "required": ["kind"]} if block else kept


def _partial_name(family: str) -> str:
    return f"Partial{family.capitalize()}"


def _without_kind(family: str, definitions: Schema) -> Schema:
    """A block in a layer that is merged over another: any field of the family, and no `kind` of its own."""
    from archsim.blocks.dispatch import class_names

    fields: dict[str, list[Any]] = {}
    for name in sorted(class_names(family)):
        for field, rule in definitions[name]["properties"].items():
            if field != "kind" and rule not in fields.setdefault(field, []):
                fields[field].append(rule)
    rules = {field: found[0] if len(found) == 1 else {"anyOf": found} for field, found in sorted(fields.items())}
    text = f"Fields of an {family} block whose `kind` comes from the layer underneath."
    return {"type": "object", "description": text, "properties": rules, "additionalProperties": False}


def _open_families(made: Schema, definitions: Schema) -> None:
    """Replace every mark of a family by its classes, told apart by `kind`, and a partial block."""
    from archsim.blocks.dispatch import FAMILY, class_names

    for node in [*_nodes(made), *_nodes(definitions)]:
        family = node.pop(FAMILY, None)
        if family is not None:
            names = [*sorted(class_names(family)), _partial_name(family)]
            node["oneOf"] = [{"$ref": f"#/$defs/{name}"} for name in names]


def _nodes(value: object) -> Iterator[Schema]:
    """Every mapping inside a schema."""
    if isinstance(value, dict):
        yield value
        for inner in list(value.values()):
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)


def _extendable(made: Schema) -> Schema:
    """A model that extends another may leave out all but its name."""
    required = made.pop("required", [])
    made["required"] = ["name"]
    made["anyOf"] = [{"required": ["extends"]}, {"required": sorted(set(required) - {"name"})}]
    return made


# ---------------------------------------------------------------------- devices
IN_LISTS = ("Cost", "Level", "Reduction")
"""Sections that stand in lists, which a variant replaces whole: their fields are never merged."""


def _hardware() -> Schema:
    from archsim.spec.hardware import Hardware

    made = Hardware.model_json_schema()
    required = made.pop("required", [])
    made["required"] = ["id", "schema"]
    made["anyOf"] = [{"required": ["variant_of"]}, {"required": sorted(required)}]
    merged = [made, *(rule for name, rule in made["$defs"].items() if name not in IN_LISTS)]
    for section in merged:
        if section is not made:
            section.pop("required", None)
        _removable(section, keep=made["required"] if section is made else [])
    _peaks_as_text(made)
    return made


def _removable(section: Schema, keep: list[str]) -> None:
    """In a variant, null removes what the base device has."""
    for field, rule in section.get("properties", {}).items():
        named = rule.get("additionalProperties")
        if isinstance(named, dict):
            rule["additionalProperties"] = _or_null(named)
        if field not in keep:
            section["properties"][field] = _or_null(rule)


def _or_null(rule: Schema) -> Schema:
    null = {"type": "null"}
    if null in rule.get("anyOf", ()) or rule.get("default", 0) is None:
        return rule
    return {"anyOf": [rule, null]}


def _system() -> Schema:
    from archsim.spec.hardware import System

    return System.model_json_schema()


def _peaks_as_text(made: Schema) -> None:
    """A peak may be one quantity, the matrix unit's."""
    fields = made["$defs"]["UnitPeaks"]
    text = {"type": "string", "description": "the matrix unit's dense peak with fp32 accumulation"}
    extra = {
        "value": {"type": "string"},
        "unit": {"enum": ["matrix", "vector"]},
        "accumulate": {"enum": ["fp16", "fp32"]},
    }
    fields["properties"] |= extra
    made["$defs"]["UnitPeaks"] = {"anyOf": [text, fields]}


# ---------------------------------------------------------------------- files
def text_of(kind: str) -> str:
    """The file of one kind, as it is written."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def write_all(folder: Path, *, force: bool = False) -> list[Path]:
    """Write `KIND.schema.json` of every kind into a folder, made if it does not exist; all of them or none.

    force: replace files that exist. Raises OutputRefused, OutputFailure.
    """
    paths = {make_folder(folder) / f"{kind}.schema.json": kind for kind in KINDS}
    for path in paths:
        check_output(path, force=force)
    for path, kind in paths.items():
        write_text(path, text_of(kind), force=force)
    return list(paths)
