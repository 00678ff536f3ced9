"""Command lines as people write them: `--hw 8xh100`, several values where one is wanted, an option that is missing."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

from typer import Context
from typer.core import TyperCommand, TyperGroup
from typer.models import ParameterInfo

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.cli.words import CommandLineError, TypedWord, takes_several, words

RANGES = re.compile(r"[0-9]+[kKmM]?([,+*-][0-9]*[kKmM]?)+")
"""Several numbers, or a range of them."""

NUMBERS = ("batch", "input_len", "output_len", "devices", "tp", "pp", "ep", "dp")
NAMES = ("hw", "weights", "kv_cache_dtype", "engine")
"""Options that other commands take several of."""

HW = ("--hw", "--gpu")

EXAMPLES = {"hw": "h100", "out": "FILE.html", "from_": "TABLE.csv"}
"""Values that show how an option is written that is missing."""


MEANT: Mapping[str, tuple[str, ...]] = {
    "context": ("--context", "--context-len", "--input-len"),
    "ctx": ("--context", "--context-len", "--input-len"),
    "ctx-size": ("--context", "--context-len", "--input-len"),
    "max-model-len": ("--context", "--context-len", "--input-len"),
    "context-length": ("--context", "--context-len", "--input-len"),
    "context-len": ("--context", "--input-len"),
    "seq-len": ("--context", "--input-len"),
    "prompt": ("--input-len", "--context"),
    "max-tokens": ("--output-len",),
    "max-num-seqs": ("--max-num-seqs", "--concurrency", "--batch"),
    "batch-size": ("--batch", "--concurrency"),
    "users": ("--concurrency", "--batch"),
    "qps": ("--rate", "--concurrency"),
    "rps": ("--rate", "--concurrency"),
    "rate": ("--concurrency",),
    "gpus": ("--devices",),
    "num-gpus": ("--devices",),
    "n-gpus": ("--devices",),
    "dtype": ("--weights",),
    "precision": ("--weights",),
    "quant": ("--weights",),
    "kv-cache": ("--kv-cache-dtype",),
    "kv-dtype": ("--kv-cache-dtype",),
    "backend": ("--engine",),
    "framework": ("--engine",),
    "cost": ("--price",),
    "output": ("--out",),
}
"""What other tools call an option, and ours for it, the nearest first."""


COMMANDS_MEANT: Mapping[str, str] = {
    "recommend": "fit", "memory": "fit", "size": "fit", "vram": "fit",
    "serve": "simulate", "serving": "simulate", "plan": "simulate", "capacity": "simulate",
    "flops": "count", "params": "count", "parameters": "count", "verify": "count", "predict": "estimate",
    "info": "show", "benchmark": "measure", "bench": "measure", "profile": "trace", "optimize": "design",
    "search": "design", "convert": "import", "web": "ui",
}  # fmt: skip
"""What other tools call a command, and the one of ours that answers it."""


def option_meant(name: str, options: Sequence[str], formats: Sequence[str] = ()) -> str | None:
    """What a command has for an option that other tools have, of all its `options`; None if it has nothing. formats:
    those of its `--format`.
    """
    bare = name.lstrip("-")
    if (layout := LAYOUTS.get(bare, bare)) in formats:
        return f"--format {layout}"
    return next((ours for ours in MEANT.get(bare, ()) if ours in options), None)


ELSEWHERE: Mapping[str, str] = {
    "html": "`archsim report MODEL --hw DEVICE --out page.html` writes a page",
    **dict.fromkeys(
        ("image", "audio"),
        "`archsim estimate MODEL --hw DEVICE` and `simulate` take it, and time the encoder; here what it becomes "
        "counts as tokens of the prompt",
    ),
    "source-len": "`archsim estimate MODEL --hw DEVICE` takes it; encoder-decoders are not served in continuous "
    "batches",
}
"""Options of one command, and what to say where another one is asked for them."""


LAYOUTS: Mapping[str, str] = {"markdown": "md", "page": "html"}
"""Other names of formats."""


class Command(TyperCommand):
    """A command that takes natural spellings, and points to the command that does what another was asked."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments."""
        return passed_on(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of the command, no line of which is wider than the terminal."""
        formatter.write_dl = partial(_write_folded, formatter.write_dl, formatter.width - INDENT)
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left. Raises CommandLineError with the command line that would be answered."""
        if ctx.resilient_parsing or {"--help", "-h"} & set(args):
            return super().parse_args(ctx, args)
        args = _with_device_count(self, _from_hub(self, args))
        _refuse_without_value(self, args)
        _refuse_several(self, args, ctx)
        _refuse_more_models(self, args, ctx)
        _refuse_missing(self, args)
        return super().parse_args(ctx, args)


INDENT = 2
"""Columns before the names of options on a help page."""


def _write_folded(write: Callable[..., None], width: int, rows: Sequence[tuple[str, str]], **layout: int) -> None:
    """Names and their helps, where the names of an option take several lines if one does not hold them."""
    folded: list[tuple[str, str]] = []
    for names, text in rows:
        *above, last = _folded(names, width)
        folded += [*((line, "") for line in above), (last, text)]
    write(folded, **layout)


def _folded(names: str, width: int) -> list[str]:
    """Lines of a list of names, parted behind commas and bars; those that follow the first stand further in."""
    lines = [""]
    for part in re.findall(r".+?(?:, |\||$)", names):
        if lines[-1].strip() and len((lines[-1] + part).rstrip()) > width:
            lines.append(" " * INDENT)
        lines[-1] += part
    return [line.rstrip() for line in lines]


Convert = Callable[[Context, object], object]


def passed_on(params: list[Any]) -> list[Any]:
    """Options, which typer converts only where there is something to convert: it makes a pydantic adapter for the type
    of each, used or not, and that takes longer than most answers. Versions before convert by click, which is quick.
    """
    for param in params:
        if hasattr(param, "type_descriptor") and "process_value" not in vars(param):
            param.process_value = partial(_value, param, param.process_value)
    return params


def _value(param: Described, convert: Convert, ctx: Context, given: object) -> object:
    """The value of an option: as it is given where it is of the option's type already and there are no limits."""
    several = param.multiple or param.nargs != 1
    rules = param.type_descriptor.parameter_info
    limits = (rules.parser, rules.min, rules.max)
    source = ctx.get_parameter_source(param.name or "")
    stated = source is None or source.name != "DEFAULT"
    absent = given is None and not param.required
    typed = (
        type(given) is param.type_descriptor.annotation
        and not several
        and not (stated and any(x is not None for x in limits))
    )
    if not absent and not typed:
        return convert(ctx, given)
    value = () if absent and several else given
    return value if param.callback is None else param.callback(ctx, param, value)


class TypeDescriptor(Protocol):
    """The type of an option, and what was stated of it."""

    annotation: object
    parameter_info: ParameterInfo


class Described(Protocol):
    """An option or argument of a typer that describes their types."""

    name: str | None
    multiple: bool
    nargs: int
    required: bool
    callback: Callable[..., object] | None
    type_descriptor: TypeDescriptor


HUB = "--hub"


def _from_hub(command: TyperCommand, args: Sequence[str]) -> list[str]:
    """With `--hub`, the file of every `org/name` that the catalog does not have, in place of its name. A command with
    a `--hub` of its own reads that itself.
    """
    if HUB not in args or not any(HUB in param.opts and not param.expose_value for param in command.params):
        return list(args)
    from archsim.importers.hub import fetched

    found = words(command, [arg for arg in args if arg != HUB])
    return [part if word.flag else fetched(part) for word in found for part in word.args]


def _with_device_count(command: TyperCommand, args: Sequence[str]) -> list[str]:
    """`--hw 8xh100` as `--hw h100 --devices 8`, for commands that take a number of devices."""
    from archsim.spec.catalog import one_count, split_count

    found = list(words(command, args))
    if not any(param.name == "devices" for param in command.params):
        return list(args)
    result: list[str] = []
    counts: set[int] = set()
    for word in found:
        if word.param is None or word.param.name != "hw" or os.path.exists(word.value):
            result += word.args
            continue
        parts = [split_count(name) for name in word.value.split(",")]
        counts |= {count for count, _ in parts if count}
        result += [word.flag, ",".join(name for _, name in parts)] if any(n for n, _ in parts) else word.args
    stated = {word.value for word in found if word.param is not None and word.param.name == "devices"}
    try:
        count = one_count(counts, stated)
    except UsageError as error:
        raise CommandLineError(error.message, hints=error.hints) from error
    return [*result, "--devices", str(count)] if count is not None and not stated else result


def _refuse_without_value(command: TyperCommand, args: Sequence[str]) -> None:
    """An option whose value is left out, so that the next option would be taken for it."""
    flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts) if flag[:2] == "--"}
    found = list(words(command, args))
    for number, word in enumerate(found):
        if word.param is None or word.value not in flags:
            continue
        choices = _choices(word.param)
        example = choices[0] if choices else EXAMPLES.get(str(word.param.name), word.param.metavar or "VALUE")
        before, after = (
            [part for each in side for part in each.args] for side in (found[:number], found[number + 1 :])
        )
        line = shlex.join(["archsim", str(command.name), *before, word.flag, example, word.value, *after])
        known = f": {', '.join(choices)}" if choices else ""
        raise CommandLineError(f"`{word.flag}` needs a value{known}", hints=(f"for example `{line}`",))


def _choices(param: Any) -> list[str]:
    """The words that an option takes, where it takes nothing else."""
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(choice.value) for choice in kind]
    return [str(choice) for choice in getattr(getattr(param, "type", None), "choices", ())]


def _refuse_several(command: TyperCommand, args: Sequence[str], ctx: Context) -> None:
    """A list or a range where the command takes one value."""
    for word in words(command, args):
        name = word.param.name if word.param is not None else ""
        numbers = name in NUMBERS and RANGES.fullmatch(word.value) is not None
        listed = name in NAMES and "," in word.value.strip(",") and not os.path.exists(word.value)
        if (numbers or listed) and not takes_several(word.param):
            better = ("sweep", "compare") if numbers else ("compare", "sweep")
            raise CommandLineError(
                f"`archsim {command.name}` takes one value of `{word.flag}`, not {quote(word.value)}",
                hints=_elsewhere(better, name, ctx, args),
            )


def _refuse_more_models(command: TyperCommand, args: Sequence[str], ctx: Context) -> None:
    """A second model or file where the command takes one."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    given = [word.value for word in words(command, args) if word.param is None and not word.flag]
    unknown = any(word.flag and word.param is None for word in words(command, args))
    if unknown or len(arguments) != 1 or arguments[0].nargs != 1 or len(given) < 2:
        return
    if "DIR" in (arguments[0].metavar or ""):
        raise CommandLineError(
            f"`archsim {command.name}` takes one file or folder, not {len(given)}",
            hints=(
                f"a folder with the files: `archsim {command.name} {shlex.quote(os.path.dirname(given[0]) or '.')}`",
            ),
        )
    if arguments[0].name != "model":
        return
    raise CommandLineError(
        f"`archsim {command.name}` takes one model, not {len(given)}",
        hints=_elsewhere(("compare", "sweep"), "models", ctx, args),
    )


def _refuse_missing(command: TyperCommand, args: Sequence[str]) -> None:
    """A required option that is not there: the command line with an example of it."""
    given = {word.param.name for word in words(command, args) if word.param is not None}
    needed = [p for p in command.params if p.required and p.param_type_name == "option" and p.name not in given]
    takes_model = any(p.param_type_name == "argument" and p.required for p in command.params)
    models = not takes_model or any(word.param is None and not word.flag for word in words(command, args))
    for param in needed:
        example = [] if models else ["llama2-70b"]
        more = [part for each in needed for part in (each.opts[0], EXAMPLES.get(str(each.name), "VALUE"))]
        line = shlex.join(["archsim", str(command.name), *example, *args, *more])
        hints = [f"for example `{line}`"]
        hints += ["`archsim list hw` shows the devices"] if param.name == "hw" else []
        raise CommandLineError(
            f"`archsim {command.name}` needs `{param.opts[0]}` ({_lower(getattr(param, 'help', ''))})", hints=hints
        )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


NOT_WITH: Mapping[str, Sequence[str]] = {"batch": ("--concurrency", "--max-concurrency")}
"""Options that a grid over another leaves out: a number in flight stands for the batch."""


def _elsewhere(names: Sequence[str], option: str, ctx: Context, args: Sequence[str]) -> tuple[str, ...]:
    """The hint with the same question put to the first command that takes several of an option."""
    command, group = ctx.command, ctx.parent.command if ctx.parent is not None else None
    if not isinstance(group, TyperGroup):
        return ("ask once for each",)
    for name in names:
        other = group.get_command(ctx, name)
        if not isinstance(other, TyperCommand):
            continue
        several = option == "models" or any(p.name == option and takes_several(p) for p in other.params)
        if name != command.name and several:
            left_out = NOT_WITH.get(option, ())
            given = [word for word in words(command, args) if word.flag not in left_out]
            kept = [part for word in given if _takes(other, word) for part in word.args]
            kept += ["--hw", EXAMPLES["hw"]] * (not any(word.flag in HW for word in words(command, args)))
            return (f"`{shlex.join(['archsim', name, *kept])}` takes several",)
    return ("ask once for each",)


def _takes(other: TyperCommand, word: TypedWord) -> bool:
    """Whether another command has the option too."""
    return not word.flag or any(word.flag in param.opts for param in other.params)
