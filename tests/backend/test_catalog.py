"""Every model of the catalog as a module: its parameters at full size, its FLOPs and its results when reduced."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import archsim
from archsim.backend import build
from archsim.backend.module import Encoded
from archsim.backend.oracle import flops_full, param_count
from archsim.base.lazy_model import LazyModel
from archsim.blocks.dispatch import KINDS
from archsim.counts.count import count
from archsim.spec.load import load_model
from archsim.spec.model import Model
from archsim.spec.tiny import tiny

SPECS = Path(archsim.__file__).parents[1] / "specs" / "models"
NAMES = sorted(path.stem for path in SPECS.glob("[!_]*.yaml"))
BATCH, LENGTH = 2, 13
"""Longer than the windows and chunks of reduced models, and no multiple of them."""


@cache
def model(name: str) -> Model:
    """A model as it is published."""
    return load_model(str(SPECS / f"{name}.yaml"))


def kinds(spec: LazyModel) -> Iterator[str]:
    """The kind of every block in a spec."""
    for field in spec.all_fields:
        value = getattr(spec, field)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, LazyModel):
                yield from kinds(item)
    if isinstance(getattr(spec, "kind", None), str):
        yield spec.kind  # type: ignore[attr-defined]


def test_the_catalog_is_there() -> None:
    """The folder that the tests below walk over holds the catalog."""
    assert len(NAMES) > 180


@pytest.mark.parametrize("name", NAMES)
def test_parameters_equal_the_count(name: str) -> None:
    """The module on the meta device has as many parameters as the report says, also with optional parts."""
    assert param_count(model(name)) == count(model(name)).total
    parts = [part for part in ("mtp", "mlm-head") if getattr(model(name), part.replace("-", "_")) is not None]
    if parts:
        assert param_count(model(name), parts) == count(model(name), parts=parts).total


@pytest.mark.parametrize("name", NAMES)
def test_flops_of_the_reduced_model_equal_the_count(name: str) -> None:
    """torch counts of the reduced module what `full` says, to the unit."""
    small = tiny(model(name))
    assert flops_full(small, BATCH, LENGTH) == count(small, batch=BATCH, input_len=LENGTH).full.total


@pytest.mark.parametrize("name", NAMES)
def test_the_reduced_model_runs(name: str) -> None:
    """A forward pass gives finite numbers."""
    small = tiny(model(name))
    ids = torch.randint(small.vocab_size, (1, LENGTH))
    net = build(small, "cpu")
    output = net(ids, source=net.source_of(ids))
    assert (output.hidden if isinstance(output, Encoded) else output).isfinite().all()


IN_ENCODERS = {*KINDS["stage"], "shaw"}
"""What encoders of images and sound alone have: they have no module of ours, and their counts are held against those of
transformers.
"""


def test_every_kind_of_block_is_covered(zoo: dict[str, Model]) -> None:
    """What no model of the catalog uses is among the small models that the same checks run on."""
    covered = {kind for small in (*map(model, NAMES), *zoo.values()) for kind in kinds(small)}
    assert {kind for family in KINDS.values() for kind in family} <= covered | IN_ENCODERS
