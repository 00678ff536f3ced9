"""Configs with other values than those of releases: counted as the class of transformers has them, or refused."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from importers.random_configs import overwritten, random_config

from archsim.importers.hf.describe import TEXT
from archsim.importers.hf.families.registry import READERS

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

UNEVEN = {
    "moonshine": "its class builds the decoder with the encoder's key/value heads",
    "longcat_flash": "its class allots matrices to experts that pass through, which no checkpoint has",
}
"""Families whose class reads a field in a way that no release relies on."""

SEEDS = range(2)


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    """The script that compares counts with those of the classes."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    path = Path(__file__).parents[2] / "benchmarks" / "coverage" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_of_configs", path)
    assert spec is not None and spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FOUND = [("gemma3n_text", 10), ("esmc", 12), ("t5gemma", 13), ("blip", 16), ("axk1", 117)]
"""Configs of other seeds that were once counted differently."""

EVERY = [(kind, seed) for kind in sorted((READERS.keys() | TEXT.keys()) - UNEVEN.keys()) for seed in SEEDS]


@pytest.mark.parametrize(("model_type", "seed"), [*EVERY, *FOUND])
def test_a_config_is_counted_as_its_class_or_refused(model_type: str, seed: int, coverage: ModuleType) -> None:
    """Never another count, and no other error than one that says what is not supported."""
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING or model_type not in coverage.model_types():
        pytest.skip("transformers has no class of it")
    config = random_config(model_type, seed)
    try:
        taken = not overwritten(config)
        wanted = coverage.classes(config) if taken else None
    except Exception:
        pytest.skip("the class refuses these values")
    if wanted is None:
        pytest.skip("the class puts other values in place of the file's")
    assert coverage.compared(model_type, config, wanted).verdict in ("equal", "refused", "no class")
