"""Fixtures over the zoo: tests that ask for one of them run once for every model that it covers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from archsim.spec.model import Model

torch.set_num_threads(1)  # tensors are tiny, and tests run in several processes


def _beside(name: str) -> ModuleType:
    """A file beside this one; tests are no package that could be imported from."""
    spec = importlib.util.spec_from_file_location("backend_" + name, Path(__file__).with_name(name + ".py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


ZOO: dict[str, Model] = _beside("zoo").ZOO
FILES = (
    "families",
    "families_more",
    "families_moe",
    "families_encoder",
    "families_recurrent",
    "families_imported",
    "families_read",
    "families_2026",
    "families_delta",
    "families_sparse",
    "families_glm",
    "families_hy4",
    "families_wider",
    "families_usual",
    "families_gpt",
    "families_sound",
    "families_states",
    "families_large",
    "families_late",
)
_beside("parity")  # the families below import it by the name it gets here
FAMILIES: dict[str, Any] = {name: family for file in FILES for name, family in _beside(file).FAMILIES.items()}
OTHERWISE = ("qwen3-next", "lara-mini", "llama4", "longformer", "switch", "xlnet", "longcat", "xlstm")
"""Families whose reference does other work for the same result: a delta rule in chunks of 64 tokens, longer than
the ones compared here; every expert on every token; overlapping blocks; experts one by one; one projection
of the positions per sequence; and a memory that takes the tokens behind the last whole chunk one by one."""
RUN_ALIKE = {name: f for name, f in FAMILIES.items() if name not in OTHERWISE}

LOOKS_AHEAD = ("moe_choice", "moe_choice_capacity", "moe_capacity")
"""Experts choose among all tokens, later ones included, or take so many of a pass."""

COVERED = {
    "any_model": list(ZOO),
    "cached_model": [n for n, m in ZOO.items() if m.cached and n not in LOOKS_AHEAD],
    "moe_model": [n for n in ZOO if n.startswith("moe")],
    "mla_model": [n for n in ZOO if n.startswith("mla")],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for every model that a fixture covers."""
    for fixture, names in COVERED.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, [ZOO[name] for name in names], ids=names)
    for fixture, known in (("family", FAMILIES), ("family_run_alike", RUN_ALIKE)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, list(known.values()), ids=list(known))


@pytest.fixture
def zoo() -> dict[str, Model]:
    """Every model by name."""
    return ZOO


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers for every test, and no gradients."""
    torch.manual_seed(0)
    with torch.no_grad():
        yield
