"""The process: runs one command line and turns whatever happens into a message and an exit code."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from itertools import pairwise
from typing import NoReturn, Protocol

from archsim.base.diagnostics import inert, shorten
from archsim.base.errors import ArchsimError, InternalError, OutputFailure, ReaderGone, UsageError
from archsim.cli.output import emit_json, say
from archsim.cli.streams import guarded
from archsim.cli.words import CommandLineError

INTERRUPTED = 130

UNCOLLECTED = 5_000_000
"""New objects after which cycles among them are looked for all the same, lest memory run out."""

WORDS = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "not a whole number",
    "Input should be ": "must be ",
    "greater than or equal to": "at least",
}
"""Words of the parser's messages, and what a reader understands better."""


class OutOfMemory(UsageError):
    """More is asked for than this machine's memory holds."""


def run() -> NoReturn:
    """The entry point of the command `archsim`."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # which it would look for in all packages
    signal.signal(signal.SIGTERM, _terminate)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # what libraries warn of is no answer; tests take warnings as errors
    code = main(sys.argv[1:])
    gc.freeze()  # nor do those of the interpreter's exit: the process ends here
    sys.exit(code)


def run_on_files() -> NoReturn:
    """`archsim-hook COMMAND [OPTION...] -- FILE...`; exits with the highest code of all files, 2 without `--`."""
    words = sys.argv[1:]
    if "--" not in words or not words[0].isidentifier():
        sys.stderr.write("archsim-hook COMMAND [OPTION...] -- FILE...: end the hook's `args` with `--`\n")
        sys.exit(2)
    end = words.index("--")
    command, options, files = words[0], words[1:end], words[end + 1 :]
    sys.exit(max((main([command, *options, "--", file]) for file in files), default=0))


def _terminate(number: int, frame: object) -> NoReturn:
    """End as after Ctrl-C: half files are removed on the way out."""
    sys.exit(128 + number)


def main(args: Sequence[str]) -> int:
    """Run a command line; returns the exit code. Nothing but the answer goes to stdout."""
    with guarded(), _seldom_collected():
        try:
            with _said_to_work(args):
                return _run_guarded(lambda: _dispatch(list(args)), wants_json(args), "--no-color" in args)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            return INTERRUPTED
        finally:
            sys.stderr.flush()


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Objects are not searched for cycles while a command runs: its graphs live to its end, so that going through them
    frees next to nothing and takes as long as all else.
    """
    before = gc.get_threshold()
    gc.set_threshold(UNCOLLECTED, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _said_to_work(args: Sequence[str]) -> AbstractContextManager[None]:
    """On a terminal, the command's name and how long it has been at work, until it writes or shows a bar of its own."""
    if not args or args[0].startswith("-") or not sys.stderr.isatty():
        return nullcontext()
    from archsim.cli.progress import WHOLE_COMMAND_S, progress

    return progress(shorten(args[0], 20), WHOLE_COMMAND_S)


def wants_json(args: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON, so that errors are JSON too."""
    options = list(args)[: list(args).index("--")] if "--" in args else list(args)
    pairs = pairwise(options)
    return "--json" in options or "--format=json" in options or ("--format", "json") in pairs


def _dispatch(args: list[str]) -> int:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # or every installed package is searched for them
    import typer

    from archsim.cli.app import app

    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    result = typer.main.get_command(app)(args=args or ["--help"], prog_name="archsim", standalone_mode=False)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _run_guarded(work: Callable[[], int], as_json: bool, no_color: bool) -> int:
    """The exit code of `work`, every exception reported."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except ArchsimError as error:
        return _report(error, as_json, no_color)
    except MemoryError:
        return _report(OutOfMemory("out of memory", hints=("request less at once",)), as_json, no_color)
    except Exception as error:
        usage = _usage(error)
        if usage is None and type(error).__name__ == "Abort":
            if not isinstance(error.__cause__, EOFError):
                raise KeyboardInterrupt from None
            error = error.__cause__  # a file that ends early: typer takes it for an answer that nobody gave
        return _report(usage or _internal(error), as_json, no_color)


def _report(error: ArchsimError, as_json: bool, no_color: bool) -> int:
    """Say what went wrong, on stdout where JSON was asked for and can be written, and give the exit code."""
    if isinstance(error, ReaderGone):
        return error.exit_code
    if as_json and not isinstance(error, OutputFailure):
        try:
            emit_json(error.to_dict())
        except (OutputFailure, ReaderGone) as closed:
            return _report(closed, as_json, no_color)
    else:
        say(error, no_color)
    return error.exit_code


class ParameterAsked(Protocol):
    """An option or argument of a command, as typer has it."""

    opts: list[str]
    default: object


class CommandAsked(Protocol):
    """A command, as typer has it."""

    params: Sequence[ParameterAsked]


class ContextAsked(Protocol):
    """What typer knows of the command that a complaint is about."""

    command_path: str
    command: CommandAsked


def _usage(error: Exception) -> CommandLineError | None:
    """typer's complaint about a command line in archsim's words."""
    import typer

    complaint = typer.BadParameter.__mro__[2]  # ClickException, of the click that this typer uses
    if not isinstance(error, complaint):
        return None
    context: ContextAsked | None = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "archsim"
    text = error.format_message()  # type: ignore[attr-defined]
    for theirs, ours in WORDS.items():
        text = text.replace(theirs, ours)
    text = shorten(inert(text), 1000).rstrip(".")
    meant = _option_meant(text, context.command.params if context is not None else ())
    if meant is not None:
        text = f"{text.partition(' (')[0]}: `{meant}` is what this command has for it"
    hints = (*(_absent_hints(text) if meant is None else ()), f"`{command} --help` lists what there is")
    return CommandLineError(text[:1].lower() + text[1:], hints=hints)


def _option_meant(text: str, params: Sequence[ParameterAsked]) -> str | None:
    """Ours for an option of other tools that a command does not have, of those that it has."""
    from archsim.cli.spellings import option_meant

    found = re.match(r"no such option: (--[\w-]+)", text, flags=re.IGNORECASE)
    if found is None:
        return None
    usual = next((param.default for param in params if "--format" in param.opts), None)
    formats = [str(layout) for layout in type(usual)] if isinstance(usual, StrEnum) else []
    return option_meant(found[1], [name for param in params for name in param.opts], formats)


def _absent_hints(text: str) -> tuple[str, ...]:
    """What archsim has instead, where an unknown option is about something that it does not model."""
    if not text.lower().startswith("no such option"):
        return ()
    from archsim.cli.spellings import ELSEWHERE
    from archsim.render.absent import nearest

    asked, _, _ = text.partition(" (")  # without the options that are spelt alike
    hint = ELSEWHERE.get(asked.rpartition("--")[2])
    return (hint,) if hint else nearest(asked)


def _internal(error: BaseException) -> InternalError:
    """A defect of archsim: its traceback only where asked for."""
    if os.environ.get("ARCHSIM_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return InternalError(
        f"internal error: {shorten(inert(what), 300)}",
        hints=(
            "please report with `archsim doctor --json` and the command line",
            "`ARCHSIM_DEBUG=1` prints the traceback",
        ),
    )
