"""No page is wider than its terminal, and the commands on it can be copied."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from archsim.cli import output
from archsim.cli.app import COMMANDS
from archsim.render.page import Page
from archsim.render.terminal import render
from archsim.render.wrapping import columns, fold_command, wrap

pytestmark = pytest.mark.slow

WIDTHS = (40, 60, 80, 100, 120, 200)

ASKED = {
    "estimate": (
        "estimate mixtral-8x7b --hw h100 --tp 4 --ep 4 --engine vllm@0.9 --concurrency 16 -v",
        "estimate llama2-70b --hw h100 --by op", "estimate llama2-7b --hw t4 --by context",
        "estimate bert-base --hw t4", "estimate llama2-70b --hw h100 --devices 1",
    ),
    "fit": ("fit llama2-70b --hw h100 --engine vllm -v", "fit llama3-8b --hw h100,a100,t4", "fit --hw t4"),
    "count": ("count deepseek-v3 -v",),
    "sweep": (
        "sweep llama3-8b mixtral-8x7b --hw h100,a100 --batch 1-4*2", "sweep llama3-8b --hw h100,a100 --batch 1-99+1"
    ),
    "compare": ("compare llama2-7b mixtral-8x7b --hw h100,a100",),
    "diff": ("diff llama2-7b llama3-8b",),
    "evolve": ("evolve llama2-7b llama3-8b --hw h100 --orders 1",),
    "scaling": (
        "scaling --compute 1e22", "scaling --params 13B --inference-tokens 2T", "scaling --params 1B --tokens 1e11"
    ),
    "simulate": (
        "simulate gpt2-small --hw t4 --rate 20 --requests 60 --input-len 64 --output-len 8 --slo ttft=1,tpot=0.1",
        "simulate gpt2-small --hw t4 --rates 5,20 --requests 40 --replications 1 --input-len 64 --output-len 8",
    ),
    "train": ("train llama3-8b --hw h100 --devices 8 --tokens 1T", "train llama3-8b --hw h100 --pp 4 --tp 2 -v"),
    "survey": ("survey",),
    "claims": ("claims",),
    "list": ("list", "list hw", "list formats", "list engines", "list runs"),
    "show": ("show llama3-8b", "show h100", "show gguf_q4_k_m", "show vllm"),
    "explain": ("explain deepseek-v3 params", "explain llama3-8b decode --hw h100", "explain E103", "explain tpot"),
    "design": ("design --hw rtx-4090 --params 1B-3B --context 8k",),
    "advise": ("advise llama3-8b --hw h100",),
    "doctor": ("doctor",),
    "validate": ("validate reports/runs/exllamav2.yaml",),
}  # fmt: skip
"""Command -> questions whose answers are pages."""

NO_PAGE = {"report", "trace", "schema", "import", "calibrate", "measure", "ui"}
"""Commands whose answer is a file or a server, or whose page takes a device or minutes."""


@pytest.fixture
def pages(archsim: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pages that a command line prints."""
    found: list[Page] = []
    monkeypatch.setattr(output, "emit_page", lambda page, *_: found.append(page))

    def ask(line: str) -> list[Page]:
        assert archsim(*line.split()).code in (0, 1)
        return found

    return ask


@pytest.mark.parametrize("line", [line for lines in ASKED.values() for line in lines])
def test_no_line_is_wider_than_the_terminal(line: str, pages: Any) -> None:
    """Every page at every width; no bar or figure is lost."""
    found = pages(line)
    assert found
    for page in found:
        figures = [cell.text for section in page.sections for cells in section.rows for cell in cells[1:-1]]
        for width in WIDTHS:
            text = render(page, width=width)
            wide = [x for x in text.splitlines() if columns(x) > width]
            assert not wide, (width, wide[:3])
            for figure in figures:
                assert not figure.replace(",", "").isdigit() or figure in text


def test_every_command_with_a_page_is_asked() -> None:
    """A new command gets a question here, or a reason why it has no page."""
    assert set(ASKED) | NO_PAGE == set(COMMANDS)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_width_is_what_is_asked_for(width: int, archsim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--width` and `COLUMNS` mean the same, and are not kept for the next command."""
    line = ("estimate", "llama2-70b", "--hw", "h100")
    asked = archsim(*line, "--width", str(width))
    assert max(map(columns, asked.out.splitlines())) <= width
    monkeypatch.setattr(output.os, "environ", {**output.os.environ, "COLUMNS": str(width)})
    assert output.line_width(output.sys.stdout) == width
    monkeypatch.undo()
    assert max(map(columns, archsim(*line).out.splitlines())) > 80


def test_width_is_checked(archsim: Any) -> None:
    """A width that holds no page is refused."""
    assert archsim("count", "llama2-7b", "--width", "10").code == 2


def test_errors_are_wrapped_too(archsim: Any) -> None:
    """A message on stderr has lines of that width; a table in it stays as it is."""
    err = archsim("estimate", "llama2-70b", "--hw", "h100", "--devices", "1", "--width", "60").err
    assert all(columns(x) <= 60 or "   " in x for x in err.splitlines())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_quoted_line_of_a_spec_fits_too(width: int, archsim: Any) -> None:
    """A long line of a spec is cut around what is wrong, which stays marked."""
    asked = ("estimate", "llama3-8b", "--hw", "h100", "--set", "attention.n_kv_heads=7", "--width", str(width))
    lines = archsim(*asked).err.splitlines()
    quoted = next(i for i, line in enumerate(lines) if " | " in line)
    assert columns(lines[quoted]) <= width
    assert lines[quoted][lines[quoted + 1].index("^") :].startswith("{kind")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_commands_can_be_copied_from_a_narrow_page(width: int, archsim: Any) -> None:
    """A shell puts the folded lines of `Try` together to the commands that a wide page shows."""
    line = "estimate mixtral-8x7b --hw h100 --tp 4 --ep 4 --engine vllm@0.9 --concurrency 16 --set max_context=40000"
    wide = archsim(*line.split()).out.partition("\nTry\n")[2]
    narrow = archsim(*line.split(), "--width", str(width)).out.partition("\nTry\n")[2]
    assert commands(narrow) == commands(wide)


def commands(text: str) -> list[list[str]]:
    """The words of every command in a text of the shell."""
    lines = text.replace("\\\n", "").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    "words",
    [
        ["archsim", "estimate", "a b", "--where", "fits and ttft_s < 0.5", "--set", "x={a: 'b c'}"],
        ["archsim", "estimate", "/" + "very-long-folder/" * 12 + "model.yaml", "--hw", "h100"],
        ["archsim", "estimate", "it's " * 30, "--hw", "x" * 150],
    ],
)
def test_a_folded_command_is_the_same_command(words: list[str], width: int) -> None:
    """Whatever its words are, and however long: no line is too wide, and the shell reads the same words."""
    lines = fold_command(shlex.join(words), width, "  ")
    assert max(map(columns, lines)) <= width
    assert commands("\n".join(lines)) == [words]


def test_long_words_are_parted_behind_signs() -> None:
    """A path is parted behind a slash; words that fit are whole."""
    assert wrap("see https://example.org/one/two/three now", 24) == ["see", "https://example.org/one/", "two/three now"]
    assert wrap("中文中文 ab", 8) == ["中文中文", "ab"]


def test_docs_name_the_width() -> None:
    """The option is documented."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "terminal.md").read_text("utf-8")
    assert "--width" in text and "COLUMNS" in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_no_wider_than_the_terminal(command: str, width: int, archsim: Any) -> None:
    """Names of options are parted where one line does not hold them, and none is lost."""
    text = archsim(*command.split(), "--help", terminal=width).out
    assert not [line for line in text.splitlines() if columns(line) > width]
    names = set(re.findall(r"(?<!\S)--[a-z-]+", archsim(*command.split(), "--help", terminal=400).out))
    assert names and names <= set(re.findall(r"(?<!\S)--[a-z-]+", text))


MISTAKES = (
    "estimate lama2 --hw h100", "estimate llama3-8b", "estimate llama3-8b --hw h100,a100",
    "estimate llama3-8b --hw h100 --tp 3", "estimate org/never-heard-of --hw h100", "estimate gpt-4 --hw h100",
    "estimate llama3-8b --hw h100 --engine vlm", "estimate llama3-8b --hw h100 --set nonsense=3",
    "estimate llama3-8b --hw h100 --set x=3", "estimate llama3-405b --hw h100 --devices 2",
    "estimate deepseek-v3 --hw rtx4090 --devices 2", "fit llama3-8b --hw h100 --weights q9", "calibrate",
    "sweep llama3-8b --hw h100 --batch 1-1000000+1 --input-len 1-1000000+1", "list nothing", "explain nothing-of-it",
    "simulate llama3-8b --hw h100", "scaling", "compare llama3-8b", "claims --id C999", "frobnicate",
)  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("line", MISTAKES)
def test_messages_are_short_and_narrow(line: str, width: int, archsim: Any) -> None:
    """No line wider than the terminal; at 80 columns and more under ten lines that say something."""
    done = archsim(*line.split(), terminal=width)
    assert done.code in (1, 2, 3) and done.err
    assert not [text for text in done.err.splitlines() if columns(text) > width]
    assert width < 80 or len([text for text in done.err.splitlines() if text.strip()]) < 10
