"""The commands and their options: what is there, and that it stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from archsim.cli.app import COMMANDS, app, load

SURFACE = Path(__file__).with_name("surface.json")


def options_of(name: str) -> list[str]:
    """Every spelling of every option of a command, its arguments in capitals."""
    found: list[str] = []
    for param in load(name).params:
        own = param.opts if param.param_type_name == "option" else [param.name.upper()]
        found += [*own, *param.secondary_opts]
    return sorted(found)


def test_surface_is_frozen(request: pytest.FixtureRequest) -> None:
    """Commands and options are those of `surface.json`; changing them takes a change of that file."""
    surface = {name: options_of(name) for name in COMMANDS}
    if request.config.getoption("--update-goldens"):
        SURFACE.write_text(json.dumps(surface, indent=1) + "\n", "utf-8")
    assert json.loads(SURFACE.read_text("utf-8")) == surface


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, archsim: Any) -> None:
    """`--help` of each command exits 0, names every option and says what each does."""
    result = archsim(name, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: archsim {name}")
    command = load(name)
    for param in command.params:
        if param.param_type_name == "option" and "--help" not in param.opts:
            assert max(param.opts, key=len) in result.out
            assert param.help, f"{name} {param.opts} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_matches(name: str) -> None:
    """The one-line help in the list of commands says what the command's own help says first."""
    words = set(COMMANDS[name].rstrip(".").lower().replace(",", "").split())
    own = (load(name).help or "").lower().replace(",", "").replace(".", " ").replace(":", " ").split()
    assert len(words & set(own)) >= len(words) // 2


def test_help_of_the_program(archsim: Any) -> None:
    """`archsim --help` lists every command and the exit codes, and so does `archsim` alone."""
    result = archsim("--help")
    assert result.code == 0
    assert all(name in result.out for name in COMMANDS)
    assert "3 invalid input file" in " ".join(result.out.split())
    assert archsim().out == result.out


def test_version(archsim: Any) -> None:
    """`--version` prints name and version on stdout."""
    import archsim as package

    result = archsim("--version")
    assert (result.code, result.out) == (0, f"archsim {package.__version__}\n")


def test_group_is_lazy() -> None:
    """Building the command line imports no command's module."""
    group = typer.main.get_command(app)
    assert not group.commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("spelling", [("--tensor-parallel-size", "2"), ("--tp-size", "2"), ("-tp", "2"), ("--tp", "2")])
def test_engine_spellings(spelling: tuple[str, str], archsim: Any) -> None:
    """The flags of serving engines mean the canonical ones."""
    result = archsim("estimate", "llama2-70b", "--hw", "h100", *spelling, "--json")
    assert result.code == 0
    assert json.loads(result.out)["plan"]["tp"] == 2


def test_token_suffixes(archsim: Any) -> None:
    """`--isl 4k` is `--input-len 4096`, and a malformed number is a usage error."""
    result = archsim("estimate", "llama2-70b", "--hw", "h100", "--isl", "4k", "--osl", "1K", "--json")
    load = json.loads(result.out)["workload"]
    assert (load["input_len"], load["output_len"]) == (4096, 1024)
    assert archsim("estimate", "llama2-70b", "--hw", "h100", "--isl", "4q").code == 2
