"""Options of all commands, which say how an answer is shown and never what it is."""

from __future__ import annotations

from typing import Annotated

import typer

from archsim.cli.output import NARROWEST, WIDTH


def _set_width(columns: int | None) -> None:
    WIDTH.set(columns)


Width = Annotated[
    int | None,
    typer.Option(
        "--width", min=NARROWEST, metavar="N", callback=_set_width, expose_value=False,
        help="Columns of a line. Default: the terminal's; 100 in files and pipes.",
    ),
]  # fmt: skip


Hub = Annotated[
    bool,
    typer.Option(
        "--hub", expose_value=False,
        help="Fetch the config.json of an unknown ORG/NAME from the Hugging Face Hub (with huggingface_hub).",
    ),
]  # fmt: skip


def everywhere(width: Width = None, hub: Hub = False) -> None:
    """Does nothing: its options are added to those of every command."""
