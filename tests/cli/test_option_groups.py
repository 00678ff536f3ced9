"""Groups of options: typer sees their options one by one, and the command the group."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from archsim.cli.option_sets.group import flat

Price = Annotated[float | None, typer.Option("--price", help="Dollars an hour.")]
Years = Annotated[int, typer.Option("--years", min=1, help="Until it is written off.")]


@dataclass(frozen=True, kw_only=True)
class Rent:
    """What a device costs."""

    price: Price = None
    years: Years = 3


def command(name: str, *, rent: Rent, quiet: bool = False) -> None:
    """Says what it was given."""
    typer.echo(f"{name} {rent} {quiet}")


def test_options_stand_where_the_group_stood() -> None:
    """In the order of its fields, with their defaults."""
    parameters = signature(flat(command)).parameters
    assert {name: p.default for name, p in parameters.items() if name != "name"} == {
        "price": None, "years": 3, "quiet": False,
    }  # fmt: skip
    assert list(parameters) == ["name", "price", "years", "quiet"]
    assert flat(typer.echo) is typer.echo


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["a100"], 0, f"a100 {Rent()} False"),
        (["a100", "--years", "5", "--quiet", "--price", "2.5"], 0, f"a100 {Rent(price=2.5, years=5)} True"),
        (["a100", "--years", "0"], 2, "--years"),
        (["--help"], 0, "Dollars an hour."),
    ],
)
def test_the_command_takes_the_group(words: list[str], code: int, text: str) -> None:
    """Made of the values that typer has converted and checked; help texts are those of the fields."""
    program = typer.Typer(rich_markup_mode=None)
    program.command()(flat(command))
    answer = CliRunner().invoke(program, words)
    assert answer.exit_code == code and text in answer.output + answer.stderr
