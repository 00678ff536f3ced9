"""One page for each command, from its help and its options."""

from __future__ import annotations

from enum import Enum
from html import escape
from typing import Any

from archsim.cli.app import COMMANDS, EPILOG, load

EVERYWHERE = ("json", "format", "verbose", "quiet", "no_color", "width", "hub")
"""Options that nearly all commands have: they stand in a table of their own."""


def pages() -> list[dict[str, str]]:
    """The commands' pages as entries of the navigation."""
    return [{name: f"commands/{name}.md"} for name in COMMANDS]


def made() -> dict[str, str]:
    """Place in the site -> page."""
    return {f"commands/{name}.md": page(name) for name in COMMANDS} | {"commands/index.md": index()}


def index() -> str:
    """All commands in a table."""
    rows = "".join(f"| [`archsim {name}`]({name}.md) | {text} |\n" for name, text in COMMANDS.items())
    return f"# Commands\n\n| command | what it answers |\n| --- | --- |\n{rows}\n{EPILOG}\n"


def page(name: str) -> str:
    """A command: what it does, how it is called, its arguments and its options."""
    command = load(name)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    own = [param for param in options if param.name not in EVERYWHERE]
    common = [param for param in options if param.name in EVERYWHERE]
    words = " ".join((param.metavar or param.name).strip("{}").upper() for param in arguments)
    return (
        f"# archsim {name}\n\n{prose(command.help or COMMANDS[name])}\n\n```sh\n"
        f"archsim {name} {words + ' ' if words else ''}[OPTIONS]\n```\n\n"
        + table("Arguments", arguments) + table("Options", own) + table("Output", common)
    )  # fmt: skip


def prose(text: str) -> str:
    """A docstring as Markdown paragraphs."""
    return "\n\n".join(" ".join(escaped(part).split()) for part in text.replace("\b", "").split("\n\n"))


def table(title: str, params: list[Any]) -> str:
    """A heading and a row for each parameter; empty without any."""
    rows = "".join(f"| {spelled(param)} | {meaning(param)} |\n" for param in params)
    head = f'## {title}\n\n<div class="options" markdown="1">\n\n| name | meaning |\n| --- | --- |\n'
    return f"{head}{rows}\n</div>\n\n" if rows else ""


def spelled(param: Any) -> str:
    """The names that a parameter goes by, the long ones first, with the shape of its value."""
    if param.param_type_name == "argument":
        return f"`{(param.metavar or param.name).upper()}`"
    names = sorted([*param.opts, *param.secondary_opts], key=lambda word: not word.startswith("--"))
    value = "" if param.is_flag else " " + str(param.metavar or choices(param) or "VALUE")
    first, *others = names
    shown = escape(first + value).replace("|", "&#124;")
    return f"<code>{shown}</code>" + "".join(f", `{word}`" for word in others)


def choices(param: Any) -> str:
    """The values of an option that takes one of a few."""
    kind = getattr(param.type_descriptor, "annotation", None)
    return "|".join(str(each.value) for each in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ""


def meaning(param: Any) -> str:
    """A parameter's help with its default, in one cell."""
    default = param.default if isinstance(param.default, int | float | str) and not param.is_eager else None
    shown = default not in (None, "", False) and "Default" not in (param.help or "")
    text = escaped(" ".join((param.help or "").split())).replace("|", "\\|")
    needed = " Needed." if param.required else ""
    return text + needed + (f" Default: `{default}`." if shown else "")


def escaped(text: str) -> str:
    """Text whose angle brackets and stars are not markup."""
    return text.replace("<", "&lt;").replace("*", "\\*")
