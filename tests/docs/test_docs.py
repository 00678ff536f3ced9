"""The documentation does what it says: pages are followed literally, outputs compared, links resolved.

What a page may hold, and what happens to it (in this order, in an empty folder of its own):

- a block below `<!-- file: PATH -->` is written to PATH;
- a block below `<!-- insert: PATH after TEXT -->` goes into PATH, behind the first line that contains TEXT;
- a `console` block is run, one command for every line that begins with `$ `, and what it prints must equal
  the text below the command; a line `...` stands for any lines. `<!-- not compared -->` above it: only run.
  `<!-- exit: N -->` above it: the exit code, 0 unless told. `<!-- only: A, B -->` above it: when rewritten,
  paragraphs that begin with these words are shown, and `...` for others;
- all `python` blocks are run as one program; those with `>>>` as doctests.

`python tests/docs/test_docs.py` rewrites every compared output and the generated parts from the present code, of the
pages named behind it or of all.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from archsim.base.errors import UsageError
from archsim.base.notes import NOTES
from archsim.blocks.dispatch import KINDS
from archsim.cli.app import COMMANDS
from archsim.explanation.formulas import explain
from archsim.render.glossary import EXPLAIN, TERMS
from archsim.spec.load import load_model

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PICTURE = DOCS / "images/terminal.svg"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
DECISIONS = tuple(sorted((DOCS / "decisions").glob("*.md")))
TEXTS = (*PAGES, *DECISIONS, ROOT / "CHANGELOG.md")

NEEDS_COPY = ("add-an-attention-variant.md",)
"""Pages that change the package itself, and are followed in a copy of it."""

WALKTHROUGHS = (
    "add-a-model.md",
    "add-a-device.md",
    "add-a-format.md",
    "add-an-engine.md",
    "add-an-attention-variant.md",
)

FORMULA_MODELS = ("llama2-70b", "mixtral-8x7b", "deepseek-v3", "gemma3-27b", "mamba-2.8b")

SPELLED = {"kv cache": "KV cache", "moe": "MoE"} | {
    term: term.upper() for term in ("flop", "gb", "gqa", "hbm", "mfu", "mla", "tpot", "ttft", "e2e")
}
"""Terms that are not written in lower case."""

BLOCK = re.compile(r"(?P<marks>(?:^<!--[^\n]*-->\n)*)^```(?P<lang>\w+)\n(?P<body>.*?)^```$", re.M | re.S)
GENERATED = re.compile(r"(?<=<!-- generated: )(\w+)( -->\n).*?(?=<!-- end -->)", re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
BANNED = (r"\bhelpers?\b", r"/work\b", r"/tmp\b", r"/home/\w", r"/root\b", r"\blocalhost\b", r"\bTODO\b")

RUN_PYTHON = """
import doctest, json, sys
scope = {"__name__": "__main__"}
for name, line, code in json.load(sys.stdin):
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, scope, name, name, line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, clear_globs=False)
        scope.update(test.globs)
        if runner.failures:
            sys.exit(1)
    else:
        exec(compile("\\n" * line + code, name, "exec"), scope)
"""


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block of a page: its language, text, marks above it and the place of its text."""

    lang: str
    body: str
    marks: tuple[str, ...]
    start: int
    line: int

    def mark(self, name: str) -> str | None:
        """What follows `name:` in a mark; "" for a bare mark; None without it."""
        for mark in self.marks:
            if mark == name or mark.startswith(name + ":"):
                return mark.removeprefix(name).removeprefix(":").strip()
        return None


@dataclass(frozen=True, slots=True)
class Command:
    """One command line of a console block, and what the page says it prints."""

    line: str
    shown: tuple[str, ...]


def fences(text: str) -> Iterator[Fence]:
    """All fenced blocks of a page, in order."""
    for found in BLOCK.finditer(text):
        marks = tuple(m.strip() for m in re.findall(r"<!--(.*?)-->", found["marks"]))
        line = text.count("\n", 0, found.start("body"))
        yield Fence(found["lang"], found["body"], marks, found.start("body"), line)


def commands(body: str) -> list[Command]:
    """The command lines of a console block."""
    found: list[Command] = []
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        line, *shown = part.rstrip("\n").split("\n")
        found.append(Command(line, tuple(s.rstrip() for s in shown)))
    return found


def environment(package: Path) -> dict[str, str]:
    """What a page's programs see: this package, no colours, no names of the user's own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARCHSIM_", "XDG_", "PYTEST_"))}
    return kept | {
        "PYTHONPATH": str(package), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1",
        "COLUMNS": "100", "XDG_DATA_HOME": str(package / "none"), "SOURCE_DATE_EPOCH": "1795132800",
    }  # fmt: skip


def run_command(command: Command, folder: Path, package: Path) -> tuple[int, list[str]]:
    """Exit code and printed lines of one command, stderr among them."""
    words = shlex.split(command.line, comments=True)
    if words[0] == "archsim":
        words = ["python", "-m", *words]
    assert words[0] == "python", f"only archsim and python are run, not `{words[0]}`"
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=folder, env=environment(package), text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    lines = [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]
    return done.returncode, lines if lines != [""] else []


def prepare(page: Path, folder: Path) -> Path:
    """Make what the page starts from, write its files; returns where its package is."""
    package = ROOT
    if page.name in NEEDS_COPY:
        shutil.copytree(ROOT / "archsim", folder / "archsim", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("specs", "hardware"):
            (folder / name).symlink_to(ROOT / name)
        package = folder
    for fence in fences(page.read_text("utf-8")):
        if target := fence.mark("file"):
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            (folder / target).write_text(fence.body, "utf-8")
        if place := fence.mark("insert"):
            target, _, text = place.partition(" after ")
            insert(folder / target, text, fence.body)
    return package


def insert(path: Path, after: str, new: str) -> None:
    """Put `new` behind the first line of a file that contains `after`."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if after in line)
    path.write_text("".join([*lines[: at + 1], new, *lines[at + 1 :]]), "utf-8")


def agrees(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Whether the printed lines are those shown, `...` standing for any number of lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def follow_console(page: Path, folder: Path, package: Path) -> None:
    """Run all commands of a page and compare."""
    for fence in fences(page.read_text("utf-8")):
        if fence.lang != "console":
            continue
        for command in commands(fence.body):
            code, printed = run_command(command, folder, package)
            wanted = int(fence.mark("exit") or 0)
            text = "\n".join(printed)
            assert code == wanted, f"{page.name}: `{command.line}` exits with {code}, not {wanted}:\n{text}"
            if fence.mark("not compared") is None:
                shown = "\n".join(command.shown)
                same = agrees(command.shown, printed)
                assert same, f"{page.name}: `{command.line}` prints\n{text}\n\nand the page shows\n{shown}"


def follow_python(page: Path, folder: Path, package: Path) -> None:
    """Run all Python of a page as one program."""
    found = fences(page.read_text("utf-8"))
    code = [(page.name, f.line, f.body) for f in found if f.lang == "python" and not is_file(f)]
    if code:
        done = subprocess.run(
            [sys.executable, "-c", RUN_PYTHON], input=json.dumps(code), cwd=folder, env=environment(package),
            text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{page.name}:\n{done.stdout}{done.stderr}"


def is_file(fence: Fence) -> bool:
    """Whether a block is the text of a file, not a program."""
    return fence.mark("file") is not None or fence.mark("insert") is not None


def name_of(page: Path) -> str:
    """A page's name in the test report."""
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_following_a_page_gives_what_it_shows(page: Path, tmp_path: Path) -> None:
    """Every file of the page is written, every command run and compared, every Python block executed."""
    if page.name in NEEDS_COPY:
        pytest.importorskip("torch")
    package = prepare(page, tmp_path)
    follow_console(page, tmp_path, package)
    follow_python(page, tmp_path, package)


@pytest.mark.parametrize("name", WALKTHROUGHS)
def test_a_walkthrough_has_a_file_and_checks_it(name: str) -> None:
    """Each walk-through holds at least one complete file and at least one command or program that uses it."""
    found = list(fences((DOCS / name).read_text("utf-8")))
    assert any(f.mark("file") for f in found)
    assert any(f.lang == "console" or (f.lang == "python" and not is_file(f)) for f in found)


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file, and to a heading of it where it names one."""
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {target} names no heading"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown renderers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_decisions_have_their_three_headings(page: Path) -> None:
    """A decision has a numbered title, then its context, the decision and the consequences, in this order."""
    text = page.read_text("utf-8")
    assert re.match(rf"# {page.name[:4]}: \S", text)
    assert re.findall(r"^## (.*)$", text, flags=re.M) == ["Context", "Decision", "Consequences"]


def test_decisions_are_numbered_without_gaps() -> None:
    """Decisions are 0001, 0002 and so on."""
    assert [int(p.name[:4]) for p in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_index_lists_every_page() -> None:
    """docs/index.md links to every other page and every decision."""
    linked = set(LINK.findall((DOCS / "index.md").read_text("utf-8")))
    pages = {p.name for p in DOCS.glob("*.md")} - {"index.md"}
    assert pages | {f"decisions/{p.name}" for p in DECISIONS} <= linked


def error_codes() -> str:
    """Every error code with its explanation."""
    return "".join(f"\n### {code}\n\n{text}\n" for code, text in EXPLAIN.items()) + "\n"


def note_codes() -> str:
    """Every code of an assumption or a warning with its meaning."""
    rows = "".join(f"| {code} | {text} |\n" for code, text in NOTES.items())
    return f"\n| code | meaning |\n| --- | --- |\n{rows}\n"


def terms() -> str:
    """Every term that `archsim explain` defines, in one line each."""
    return "\n" + "".join(f"- {SPELLED.get(term, term)}: {text}\n" for term, text in TERMS.items()) + "\n"


def formulas() -> str:
    """Parameters, cache and FLOPs of some models, as the counting code prints them in letters."""
    return "".join(formulas_of(name) for name in FORMULA_MODELS) + "\n"


def formulas_of(name: str) -> str:
    """One model's formulas with their values, and the letters in them."""
    model = load_model(name)
    found = [explain(model, quantity) for quantity in ("params", "kv_cache", "flops")]
    rows = "".join(f"| {e.title} | {e.whole.symbols} | {e.whole.value:,} {e.whole.unit} |\n" for e in found)
    letters = {letter: (n, e.meaning(letter)) for e in found for letter, n in e.letters.items()}
    named = "".join(f"| {letter} | {n:,} | {text} |\n" for letter, (n, text) in letters.items())
    return (
        f"\n## {name}\n\n| | formula | value |\n| --- | --- | --- |\n{rows}"
        f"\n| letter | number | meaning |\n| --- | --- | --- |\n{named}"
    )


def accuracy() -> str:
    """Errors on the public runs that come with archsim, in short."""
    import archsim
    from archsim.render.pages.accuracy import summary

    return summary(archsim.validate()).replace("](reports/", "](../reports/")


def headline() -> str:
    """Of the table of errors, the median of each time beside that of the datasheet roofline."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in accuracy().splitlines() if "tok" in line]
    lines = [f"| {name} | {figures} | {median} | {roofline} |" for name, figures, median, _, _, roofline in rows[:5]]
    head = "| | measured figures | archsim, median error | datasheet roofline |\n| --- | --: | --: | --: |"
    return "\n".join(["", head, *lines, "", ""])


def devices() -> str:
    """What the estimates of every device of the catalog rest on."""
    from archsim.spec.catalog import names
    from archsim.spec.load import load_hardware
    from archsim.timing.basis import basis_of
    from archsim.timing.calibration import default_store

    lines = ["| device | kernels timed on it | else those of | runs of |", "| --- | --- | --- | --- |"]
    for entry in names("hw"):
        if entry.path is None or entry.path.parent.name != "devices":
            continue
        hardware = load_hardware(entry.name)
        try:
            found = basis_of(hardware, default_store())
        except UsageError:
            lines.append(f"| {hardware.name} | | no times: it lists no peak | |")
            continue
        near = found.borrowed + (", the same architecture" if found.alike else "")
        none = "" if found.measured or near else "datasheet"
        cells = (hardware.name, ", ".join(found.measured), near or none, ", ".join(found.runs))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


MADE = {
    "codes": error_codes,
    "notes": note_codes,
    "terms": terms,
    "formulas": formulas,
    "accuracy": accuracy,
    "headline": headline,
    "devices": devices,
}
"""Name of a generated part -> what makes it."""


def generated(text: str) -> str:
    """A page with its generated parts made anew."""
    return GENERATED.sub(lambda found: found[1] + found[2] + MADE[found[1]](), text)


@pytest.mark.parametrize(
    ("page", "part"),
    [
        ("docs/errors", "codes"),
        ("docs/assumptions", "notes"),
        ("docs/glossary", "terms"),
        ("docs/formulas", "formulas"),
        ("docs/devices", "devices"),
        ("docs/validate", "accuracy"),
        ("README", "headline"),
    ],
)
def test_generated_parts_are_what_the_code_says(page: str, part: str) -> None:
    """Error codes, terms, formulas and errors stand in the documentation as the present code has them."""
    text = (ROOT / f"{page}.md").read_text("utf-8")
    assert f"<!-- generated: {part} -->" in text
    assert generated(text) == text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sections_that_pages_select_exist(page: Path) -> None:
    """Every name after `only:` begins a section of the output below it: a renamed section does not vanish silently."""
    for fence in fences(page.read_text("utf-8")):
        for name in filter(None, map(str.strip, (fence.mark("only") or "").split(","))):
            assert re.search(rf"^{re.escape(name)}", fence.body, flags=re.M), name


def test_the_glossary_can_be_parsed() -> None:
    """Every entry of the glossary is one line `- term: definition`, and no term stands twice."""
    lines = [line for line in (DOCS / "glossary.md").read_text("utf-8").splitlines() if line.startswith("- ")]
    terms = [re.fullmatch(r"- ([^:]+): (\S.*[.)])", line) for line in lines]
    assert all(terms), [line for line, term in zip(lines, terms, strict=True) if term is None]
    names = [name.strip() for term in terms if term for name in term[1].split(",")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_texts_speak_of_archsim_alone(page: Path) -> None:
    """No machine's paths and no left-over notes in the documentation."""
    text = page.read_text("utf-8")
    assert [word for word in BANNED if re.search(word, text, flags=re.I)] == []


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_commands_that_are_named_exist(page: Path) -> None:
    """Every `archsim WORD` in running text is a command of the program, a placeholder or an option."""
    named = set(re.findall(r"`archsim ([\w-]+)", page.read_text("utf-8")))
    assert {name for name in named if name.islower() and not name.startswith("-")} <= set(COMMANDS)


def test_the_model_page_lists_every_kind() -> None:
    """The table of docs/add-a-model.md names every kind of block that there is."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (DOCS / "add-a-model.md").read_text("utf-8"), flags=re.M)
    listed = {family: set(re.findall(r"`(\w+)`", kinds)) for family, kinds in rows}
    assert listed == {family: set(kinds) for family, kinds in KINDS.items()}


def refresh(pages: Sequence[Path]) -> None:
    """Rewrite compared outputs and generated parts from the present code."""
    for page in pages:
        page.write_text(generated(page.read_text("utf-8")), "utf-8")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            package = prepare(page, folder)
            text = page.read_text("utf-8")
            made = [(f, rewritten(f, folder, package)) for f in fences(text) if f.lang == "console"]
            for fence, body in reversed(made):
                text = text[: fence.start] + body + text[fence.start + len(fence.body) :]
            page.write_text(text, "utf-8")


def rewritten(fence: Fence, folder: Path, package: Path) -> str:
    """A console block with what its commands print now; of one that is not compared, programs alone are run."""
    if fence.mark("not compared") is None:
        return "".join(printed(command, fence, folder, package) for command in commands(fence.body))
    for command in commands(fence.body):
        if command.line.startswith("python "):  # it may write what later blocks read
            run_command(command, folder, package)
    return fence.body


def printed(command: Command, fence: Fence, folder: Path, package: Path) -> str:
    """A command line and what it prints now; refuses to keep the output of a failure."""
    code, lines = run_command(command, folder, package)
    if code != int(fence.mark("exit") or 0):
        raise SystemExit("\n".join([f"`{command.line}` exits with {code}", *lines]))
    only = tuple(word.strip() for word in (fence.mark("only") or "").split(",") if word.strip())
    return "\n".join([f"$ {command.line}", *(trimmed(lines, only) if only else lines)]) + "\n"


def trimmed(lines: list[str], only: tuple[str, ...]) -> list[str]:
    """The first paragraph and those that begin with one of `only`; a line `...` for others in between."""
    first, *rest = "\n".join(lines).split("\n\n")
    shown = [first]
    for paragraph in rest:
        if paragraph.startswith(only):
            shown.append(paragraph)
        elif shown[-1] != "...":
            shown.append("...")
    return "\n\n".join(shown).split("\n")


def test_the_picture_of_the_terminal_is_what_the_terminal_shows() -> None:
    """The README's picture has the lines that the command prints now."""
    assert PICTURE.read_text("utf-8") == terminal()


def terminal() -> str:
    """The picture as `reports/pictures.py` makes it."""
    return str(runpy.run_path(str(ROOT / "reports/pictures.py"))["terminal"]())


if __name__ == "__main__":
    refresh([Path(name).resolve() for name in sys.argv[1:]] or PAGES)
    PICTURE.write_text(terminal(), "utf-8")
