"""The JSON Schema files: generated, complete, and agreed with by every shipped document."""

from __future__ import annotations

import os
import re
from pathlib import Path

import jsonschema
import pytest

from archsim.base.errors import UnknownName
from archsim.blocks.dispatch import KINDS as FAMILIES
from archsim.blocks.dispatch import class_names
from archsim.spec import loader
from archsim.spec.schemas import KINDS, schema, text_of, write_all

ROOT = Path(__file__).resolve().parents[2]
PLACES = {
    "model": "specs/models",
    "format": "specs/formats",
    "hardware": "hardware/devices",
    "system": "hardware/systems",
    "engine": "specs/engines",
}
DOCUMENTS = [
    (kind, path)
    for kind, folder in PLACES.items()
    for path in sorted((ROOT / folder).glob("*.yaml"))
    if not path.name.startswith("_")
]
VALIDATORS = {kind: jsonschema.Draft202012Validator(schema(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_file_is_what_the_command_writes(kind: str) -> None:
    """`specs/schemas` is generated: `archsim schema --write specs/schemas --force` brings it up to date."""
    assert (ROOT / "specs/schemas" / f"{kind}.schema.json").read_text("utf-8") == text_of(kind)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_valid(kind: str) -> None:
    """Each is a valid schema of the 2020-12 draft, and every reference leads somewhere."""
    made = schema(kind)
    jsonschema.Draft202012Validator.check_schema(made)
    for name in re.findall(r'"#/\$defs/(\w+)"', text_of(kind)):
        assert name in made["$defs"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "path"), DOCUMENTS, ids=[path.stem for _, path in DOCUMENTS])
def test_shipped_document(kind: str, path: Path) -> None:
    """Every shipped document validates, and its first line names its schema by a relative path."""
    error = jsonschema.exceptions.best_match(VALIDATORS[kind].iter_errors(loader.read(path)))
    assert error is None, f"{list(error.absolute_path)}: {error.message}"
    first = path.read_text("utf-8").split("\n", 1)[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match, "no modeline"
    target = Path(os.path.normpath(path.parent / match[1]))
    assert target == ROOT / "specs/schemas" / f"{kind}.schema.json" and target.is_file()


def test_every_block_is_there() -> None:
    """All classes of all families are definitions, and fields hold one of them or a partial one."""
    definitions = schema("model")["$defs"]
    for family in FAMILIES:
        assert class_names(family) <= definitions.keys()
    choices = definitions["Layer"]["properties"]["attention"]["anyOf"][0]["oneOf"]
    assert [choice["$ref"].rsplit("/", 1)[1] for choice in choices] == [
        "Attention", "CompressedAttention", "DifferentialAttention", "Mla", "PartialAttention"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"colour": "red"}, False),
        ({"d_model": "64"}, False),
        ({"layers": [{"attention": {"kind": "gqe", "n_heads": 4}}]}, False),
        ({"layers": [{"attention": {"mask": {"kind": "sliding", "window": 8}}}]}, True),
        ({"layers": [{"ffn": {"kind": "swiglu", "d_fff": 4}}]}, False),
        ({"d_model": None}, False),
    ],
)
def test_what_it_accepts(change: dict[str, object], valid: bool) -> None:
    """Unknown fields, kinds and types are refused; a partial layer is not."""
    base = {"name": "x", "d_model": 64, "vocab_size": 10, "layers": [{"ffn": {"kind": "mlp", "d_ff": 4}}]}
    assert VALIDATORS["model"].is_valid({**base, **change}) is valid


def test_an_extending_model_may_leave_out_the_rest() -> None:
    """`extends` and a name are enough; without it the widths are required."""
    assert VALIDATORS["model"].is_valid({"name": "x", "extends": "llama2-70b"})
    assert not VALIDATORS["model"].is_valid({"name": "x"})


def test_unknown_schema() -> None:
    """Another kind is refused with the known ones."""
    with pytest.raises(UnknownName, match="poem"):
        schema("poem")


def test_write(tmp_path: Path) -> None:
    """All files are written into a folder that is made."""
    paths = write_all(tmp_path / "a" / "b")
    assert [path.name for path in paths] == [f"{kind}.schema.json" for kind in KINDS]
