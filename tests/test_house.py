"""The house stays in order: what `tests/house.py` measures, against its bars."""

from __future__ import annotations

import importlib
import pkgutil
import re
from contextlib import suppress
from inspect import isfunction
from typing import Any

import house
import pytest

import archsim
from archsim import api


@pytest.mark.slow
def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions and for type checking alone count as well: none hides a circle."""
    assert house.circles() == []


@pytest.mark.slow
def test_imports_inside_functions_save_something() -> None:
    """What a module loads anyway is imported at its top, where readers look for it."""
    assert house.needless_late_imports() == []


def test_folders_can_be_read_at_a_glance() -> None:
    """At most forty Python files in one folder."""
    assert not {folder: count for folder, count in house.folders().items() if count > 40}


@pytest.mark.slow
def test_a_class_name_means_one_thing() -> None:
    """No two classes of one package level have one name."""
    assert not house.class_names_twice()


@pytest.mark.slow
def test_functions_are_short() -> None:
    """Ninety of a hundred have at most 30 lines; at most fifteen have more than 60, one idea each."""
    lengths = [length for length, _ in house.function_lengths()]
    assert lengths[len(lengths) // 10] <= 30
    assert sum(length > 60 for length in lengths) <= 15, house.function_lengths()[:16]


@pytest.mark.slow
def test_types_say_something() -> None:
    """`Any` stands only where a value truly is any."""
    assert house.uses_of_any() <= 280


@pytest.mark.slow
def test_every_package_says_what_lives_in_it() -> None:
    """A README.md in each: what lives here, the rule, how to add one more, which test; what it names is there."""
    for package in sorted(path.parent for path in house.PACKAGE.glob("*/__init__.py")):
        text = (package / "README.md").read_text("utf-8")
        assert text.startswith(f"# archsim.{package.name}\n") and 10 <= text.count("\n") <= 30
        assert all(f"**{part}.**" in text for part in ("The rule", "Add one more", "Test"))
        for named in re.findall(r"`([\w/]+\.(?:py|yaml|md|json))`", text):
            places = (package, house.PACKAGE, house.ROOT, house.ROOT / "docs", *house.PACKAGE.glob("*/"))
            tests = [*(house.ROOT / "tests").rglob(named)]
            assert tests or any((place / named).exists() for place in places), (package.name, named)
        for folder in re.findall(r"`(tests/[\w/]+)`", text):
            assert (house.ROOT / folder).exists(), (package.name, folder)


PAIR = ("gpt2-small", "gpt2-medium")
PUBLIC: dict[str, tuple[Any, ...]] = {
    "advise": ("llama3.2-1b", "rtx-4090"),
    "claims": (),
    "compare": (PAIR, "h100"),
    "compare_training": (PAIR, "h100"),
    "count": ("gpt2-small",),
    "diff": PAIR,
    "estimate": ("gpt2-small", "h100"),
    "evolve": (*PAIR, None),
    "fit": ("gpt2-small", "h100"),
    "fits": ("t4",),
    "load_hardware": ("h100",),
    "load_model": ("gpt2-small",),
    "report": ("gpt2-small", "h100"),
    "report_training": (PAIR, "h100"),
    "design": ("rtx-4090",),
    "scaling": (1e21,),
    "simulate": ("gpt2-small", "h100"),
    "survey": (),
    "sweep": ("gpt2-small", "h100"),
    "sweep_training": ("gpt2-small", "h100"),
    "trace": ("gpt2-small", "h100"),
    "train": ("gpt2-small", "h100"),
    "validate": (),
}
"""Every public function, with arguments."""
OPTIONS: dict[str, dict[str, Any]] = {"simulate": {"concurrency": 2, "requests": 20}}
"""Options that they cannot do without."""


def public_functions() -> set[str]:
    """Names of the functions of `archsim` and `archsim.api`, before any other module is imported."""
    own = {name for name, what in vars(api).items() if isfunction(what) and what.__module__ == api.__name__}
    return {name for name in {*own, *archsim.__all__} if not name.startswith("_") and name != "ArchsimError"}


def test_every_public_function_is_called_here() -> None:
    """A new one is added to `PUBLIC`."""
    assert public_functions() == set(PUBLIC)


@pytest.mark.slow
def test_no_module_shadows_a_public_function() -> None:
    """Importing a sub-package sets its name on `archsim`: with all imported, every function still answers."""
    pytest.importorskip("torch")
    for module in pkgutil.walk_packages(archsim.__path__, "archsim."):
        if not module.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # what runs on a GPU alone, such as Triton
                importlib.import_module(module.name)
    for name, arguments in PUBLIC.items():
        function = getattr(archsim if name in archsim.__all__ else api, name)
        assert isfunction(function) and function(*arguments, **OPTIONS.get(name, {})) is not None, name


def test_no_package_has_the_name_of_a_public_function() -> None:
    """The package would take its place on `archsim` as soon as it is imported."""
    assert not {module.name for module in pkgutil.iter_modules(archsim.__path__)} & set(PUBLIC)
