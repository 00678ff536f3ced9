"""Texts of specs that mean harm are inert in every layout of every command that takes a model or a device."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

ATTACKS = {
    "formula": '=HYPERLINK("https://x.y";"z")',
    "signs": "+1+cmd|' /C calc'!A1,\n-2;@SUM(1)",
    "markup": "</title></script><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x",
    "markdown": "# a | b \\| c `d` **e** [f](javascript:alert(1)) ![g](https://x.y/z.png)\n\n- h\n---\n> i ~~j~~",
    "terminal": "\x1b[2J\x1b]0;title\x07\x9b31mred\x7f\u202eevil\u2066\u200b\r\nerror: forged\t\x00\ufeff",
    "long": "=" + "N" * 10_000,
}

URLS = ("javascript:alert(1)", 'https://x.y/"onclick="z', "data:text/html,<script>alert(1)</script>")

SPEC = """
name: {said}
title: {said}
org: {said}
aliases: [{said}]
lineage: {{parent: {said}, changes: [{said}]}}
d_model: 64
vocab_size: 128
max_context: 4096
layers:
  - name: {said}
    repeat: 2
    norm: {{kind: rmsnorm}}
    attention: {{kind: gqa, n_heads: 4, n_kv_heads: 2, d_head: 16}}
    ffn: {{kind: swiglu, d_ff: 128}}
published: {{params: {said}, note: {said}}}
notes: [{said}]
sources:
  - {{id: {said}, title: {said}, url: {url}, covers: [{said}]}}
"""

COMMANDS = {
    "estimate": ("estimate M --hw D", "table md json csv"),
    "estimate -v": ("estimate M --hw D -v", "table md"),
    "estimate --by": ("estimate M --hw D --by op", "table md json csv"),
    "estimate too small": ("estimate M --hw D --batch 999999 --devices 1", "table md json csv"),
    "count": ("count M", "table md json csv"),
    "fit": ("fit M --hw D", "table md json csv"),
    "compare": ("compare M gpt2-small --hw D,t4", "table md json csv html"),
    "diff": ("diff M gpt2-small", "table md json csv html"),
    "evolve": ("evolve M gpt2-small --hw D --orders 2", "table md json csv html"),
    "sweep": ("sweep M gpt2-small --hw D --batch 1-4*2", "table md json csv html"),
    "sweep of many": ("sweep M gpt2-small --hw D --batch 1-64+1", "table md json csv html"),
    "explain": ("explain M kv_cache", "table md json csv"),
    "explain time": ("explain M decode --hw D", "table md json csv"),
    "show": ("show M", "table md json csv"),
    "show device": ("show D", "table md json csv"),
    "trace": ("trace M --hw D", ""),
}
"""Name -> command line (M: the hostile model, D: the hostile device) and its layouts."""


def spec(words: str, url: str = URLS[0]) -> str:
    """A model whose every free text is hostile."""
    return SPEC.format(said=json.dumps(words), url=json.dumps(url))


def device(words: str, url: str = URLS[0]) -> str:
    """A device whose every free text is hostile."""
    found = yaml.safe_load((ROOT / "hardware" / "devices" / "a10.yaml").read_text("utf-8"))
    found |= {"id": words, "name": words, "vendor": words, "aliases": [words], "notes": [words]}
    found["arch"] |= {"family": words, "chip": words}
    found["memory"] |= {"label": words}
    for source in found["sources"].values():
        source |= {"title": words, "url": url}
    found["sources"] = {words[:900]: found["sources"].pop("formula"), **found["sources"]}
    return json.dumps(found)


# ---------------------------------------------------------------------- what inert means
def printable(text: str) -> None:
    """Nothing that a terminal would obey."""
    bad = {c for c in text if c != "\n" and not c.isprintable()}
    assert not bad, sorted(map(hex, map(ord, bad)))


def table(text: str) -> None:
    """Printable, and no line without end."""
    printable(text)
    assert max(map(len, text.splitlines())) < 1000


def md(text: str) -> None:
    """No element, no link but a bare address, and every table as wide as its head."""
    printable(text)
    text = re.sub(r"^```sh$.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)
    assert "<" not in bare
    assert "`" not in bare
    assert not re.search(r"[\[\]]", bare)
    width = 0
    for line in bare.splitlines():
        cells = line.count("|")
        assert not cells or not width or cells == width, line[:200]
        assert not re.match(r"#{1,6} ", line) or line.startswith(("## ", "### ", "#### "))
        width = cells


def as_json(text: str) -> None:
    """A document without a number that is none."""
    printable(text)
    json.loads(text, parse_constant=pytest.fail)


def as_csv(text: str) -> None:
    """Rows as wide as the head, none of whose cells is run by a spreadsheet."""
    printable(text)
    head, *rows = csv.reader(io.StringIO(text))
    for line in rows:
        assert len(line) == len(head)
        for cell in line:
            assert not cell.lstrip().startswith(("=", "+", "@", "\t")), cell[:80]
            assert not cell.startswith("-") or float(cell) < 0


class Tags(HTMLParser):
    """Refuses what could run or load, but for the scripts whose hashes the page's own policy names."""

    def __init__(self, allowed: set[str]) -> None:
        super().__init__()
        self.allowed, self.open, self.inside = allowed, "", ""

    def handle_data(self, data: str) -> None:
        """What stands in an element."""
        self.inside += data

    def handle_endtag(self, tag: str) -> None:
        """A script runs only where its hash is in the policy; data beside it are no script."""
        if self.open == tag == "script":
            digest = base64.b64encode(hashlib.sha256(self.inside.encode()).digest()).decode()
            assert digest in self.allowed, self.inside[:200]
        self.open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Neither handlers nor addresses of other kinds."""
        found = dict(attrs)
        self.inside = ""
        self.open = tag if found.get("type") != "application/json" else ""
        assert tag not in ("img", "iframe", "object", "link", "base", "form"), (tag, found)
        assert not [name for name in found if name.startswith("on") or name in ("src", "srcset")]
        assert re.match(r"#|https://[^\"<>]*$", found.get("href") or "#")


def html(text: str) -> None:
    """Only the page's own elements, and no text without bounds."""
    Tags(set(re.findall(r"'sha256-([^']+)'", text[: text.find("</head>")]))).feed(text)
    assert "default-src 'none'" in text
    printable(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    assert "N" * 3000 not in text


INERT: dict[str, Callable[[str], None]] = {
    "table": table, "md": md, "json": as_json, "csv": as_csv, "html": html,
}  # fmt: skip


# ---------------------------------------------------------------------- the commands
@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """Writes the model and the device; their places by letter."""

    def write(words: str, url: str) -> dict[str, str]:
        places = {"M": tmp_path / "m.yaml", "D": tmp_path / "d.yaml"}
        places["M"].write_text(spec(words, url), "utf-8")
        places["D"].write_text(device(words, url), "utf-8")
        return {letter: str(path) for letter, path in places.items()}

    return write


def words_of(line: str, places: dict[str, str]) -> list[str]:
    """A command line with the files in their places."""
    return [",".join(places.get(part, part) for part in word.split(",")) for word in line.split()]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("command", COMMANDS)
def test_texts_are_inert(command: str, attack: str, archsim: Any, files: Callable[[str, str], dict[str, str]]) -> None:
    """Every layout of a command says what the texts are and does nothing of what they want."""
    line, layouts = COMMANDS[command]
    words = words_of(line, files(ATTACKS[attack], URLS[len(attack) % len(URLS)]))
    for layout in layouts.split() or ["json"]:
        result = archsim(*words, *(("--format", layout) if layouts else ()))
        assert result.code in (0, 1), (result.code, result.err[:500])
        assert result.code == 0 or "too small" in command, result.err[:500]
        INERT[layout](result.out)
        printable(result.err)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_report_files_are_inert(attack: str, archsim: Any, tmp_path: Path, files: Any) -> None:
    """The report's page, and what is printed beside it."""
    places = files(ATTACKS[attack], URLS[len(attack) % len(URLS)])
    out = tmp_path / "r.html"
    words = words_of("report M gpt2-small --hw D --light --out", places)
    result = archsim(*words, str(out))
    assert result.code == 0, result.err
    table(result.out)
    printable(result.err)
    html(re.sub(r"<pre\b.*?</pre>", "", out.read_text("utf-8"), flags=re.S))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("attack", ["formula", "signs", "terminal", "long"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_sweep_files_are_inert(attack: str, kind: str, archsim: Any, tmp_path: Path, files: Any) -> None:
    """The files that a sweep writes."""
    places = files(ATTACKS[attack], URLS[0])
    out = tmp_path / f"s.{kind}"
    result = archsim(*words_of("sweep M gpt2-small --hw D --batch 1-8*2 --out", places), str(out))
    assert result.code == 0, result.err
    printable(result.err)
    INERT[kind](out.read_text("utf-8"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_names_on_the_command_line_are_inert(attack: str, archsim: Any) -> None:
    """A name that is not known is told as a name."""
    result = archsim("compare", ATTACKS[attack].replace("\x00", ""), "gpt2-small", "--hw", "t4")
    assert (result.code, result.out) == (2, "")
    printable(result.err)
    assert len(result.err) < 5000


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_lists_are_inert(attack: str, archsim: Any, tmp_path: Path) -> None:
    """Own specs and devices in the lists of what there is."""
    for folder, name, text in (("specs", "m", spec(ATTACKS[attack])), ("hardware", "d", device(ATTACKS[attack]))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(text, "utf-8")
    for what in ("models", "hw"):
        for layout in ("table", "md", "json", "csv"):
            result = archsim("list", what, "--format", layout, cwd=tmp_path)
            assert result.code == 0, result.err
            INERT[layout](result.out)
            printable(result.err)
