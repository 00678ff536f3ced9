"""The command line: which commands there are. A command's module is imported when it is invoked."""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import archsim
from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName, did_you_mean
from archsim.cli.option_sets.group import flat
from archsim.cli.spellings import COMMANDS_MEANT, Command, passed_on

COMMANDS = {
    "estimate": "How big, how fast, does it fit, and what limits it.",
    "fit": "Whether it starts, how many KV tokens are left, which flag to change.",
    "count": "Parameters, bytes and FLOPs, exactly.",
    "simulate": "Serving under load: latency percentiles, throughput, queues.",
    "sweep": "How it scales over models, devices, formats, plans and workloads.",
    "compare": "Which is better, by how much, where the difference comes from, and with what confidence.",
    "diff": "How two architectures differ: parameters, FLOPs, KV cache, wiring.",
    "evolve": "From one architecture to another, one decision at a time, with its cost.",
    "trace": "The predicted step as a Chrome/Perfetto trace, kernel by kernel.",
    "validate": "Prediction errors against measurements that the predictor does not see.",
    "report": "One HTML file that compares models on devices, with charts.",
    "ui": "A page in the browser with live controls for model, device and load.",
    "calibrate": "Fits the time model to measured kernels.",
    "measure": "Times kernels and whole models on this machine.",
    "train": "A training run: memory, step time, MFU, the layout, days and device-hours.",
    "design": "The best spec for a device, a context and a budget, and the plateau around it.",
    "advise": "Which single change helps a model most, in milliseconds, gigabytes and dollars.",
    "scaling": "What scaling laws say: the model and tokens of a compute budget, the loss of a run.",
    "survey": "Design choices of the catalog's models by year, and a published study of 53 models rechecked.",
    "claims": "Numeric claims of articles, recomputed and checked by one rule.",
    "import": "Turns a checkpoint's config.json into a YAML spec, and checks its size.",
    "list": "Models, devices, formats, engines and measured runs that archsim knows.",
    "show": "One model, device or format with its sources.",
    "explain": "A figure's formula with its numbers, an error code or a term.",
    "schema": "JSON Schema of the documents.",
    "doctor": "Versions, data folders and settings, for bug reports.",
}
"""Command -> its help in one line. The function of the same name is in `archsim.cli.<command>`; where that is a
word of Python, both have a `_` behind it."""

EPILOG = (
    "Exit codes: 0 answered; 1 the answer is no; 2 usage; 3 invalid input file; 70 internal error; "
    "74 output cannot be written; 130 interrupted; 141 the reader closed the pipe."
)


class Lazy(TyperGroup):
    """A group whose commands are imported one by one, when asked for by name."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the program itself."""
        return passed_on(super().get_params(ctx))

    def list_commands(self, ctx: object) -> list[str]:
        """Names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        """The command, its module imported now."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments begin with; a misspelt one is answered with the closest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            from archsim.render.absent import nearest

            asked = args[0][:100].lower()
            if meant := COMMANDS_MEANT.get(asked):
                close = [f"`archsim {meant}` answers that: {COMMANDS[meant]}"]
            else:
                close = [*nearest(args[0]), *did_you_mean(difflib.get_close_matches(asked, COMMANDS, n=3, cutoff=0.6))]
            hints = (*close, "`archsim --help` lists all commands")
            raise UnknownName(f"no command named {quote(args[0])}", code="E102", hints=hints)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands' one-line helps, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load(name: str) -> Any:
    """The command object of one name."""

    word = name + "_" if iskeyword(name) else name
    function = getattr(import_module(f"archsim.cli.{word}"), word)
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name=name, cls=Command, help=function.__doc__, epilog=None)(flat(function))
    made = typer.main.get_command(single)
    own = {param.name for param in made.params if param.param_type_name == "argument"}
    made.params += [
        param for param in _everywhere().params if param.name != "help" and (param.name != "hub" or own & MODELS)
    ]
    return made


MODELS = frozenset({"model", "models", "a", "topic"})
"""Arguments that models are named by."""


def _everywhere() -> Any:
    """The options that all commands have, as those of a command that does nothing."""
    from archsim.cli.options import everywhere

    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command()(everywhere)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=Lazy, add_completion=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archsim {archsim.__version__}")
        raise typer.Exit()


@app.callback()
def archsim_(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Estimates what transformer architectures cost: parameters, FLOPs, KV cache, memory and time from one spec."""
