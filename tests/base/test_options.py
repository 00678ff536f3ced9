"""The options of the Python functions: typed, complete and checked."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim import api
from archsim.base import options
from archsim.base.errors import UsageError
from archsim.counts.count import count
from archsim.memory.fit import fit
from archsim.predict.estimate import estimate


@pytest.mark.parametrize(
    ("function", "kind", "own"),
    [(count, options.CountArguments, set()), (fit, options.FitArguments, set()),
     (estimate, options.EstimateArguments, set())],
)  # fmt: skip
def test_options_are_those_of_the_function(function: Any, kind: Any, own: set[str]) -> None:
    """What the interface lists is what the function behind it takes."""
    parameters = inspect.signature(function).parameters
    named = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert named - own == set(kind.__annotations__)


def test_every_public_name_is_known_to_type_checkers() -> None:
    """The lazy package face lists the same names for completion as it gives out at run time."""
    tree = ast.parse(Path(archsim.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(archsim.__all__) - {"__version__"}
    assert all(getattr(archsim, name) is not None for name in archsim.__all__)


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    """As on the command line: an error with a hint, of every function."""
    calls: list[Any] = [
        lambda **o: api.count("gpt2-small", **o), lambda **o: api.estimate("gpt2-small", "h100", **o),
        lambda **o: api.compare("gpt2-small", "h100,t4", **o), lambda **o: api.sweep("gpt2-small", "h100", **o),
        lambda **o: api.report("gpt2-small", "h100", **o), lambda **o: api.diff("gpt2-small", "gpt2-xl", **o),
        api.claims, api.validate,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UsageError, match="no option named 'colour'") as caught:
            call(colour="red")
        assert caught.value.hints[-1].startswith("known: ")
