"""What the site has beyond the pages of docs/: made at every build, never kept in the repository.

mkdocs calls the functions whose names begin with `on_`. Pages are made from what the code and the repository say: one
for every command from its help, the reference of the Python interface, the gallery of all drawings, reports, accuracy,
claims, changelog and citation. The navigation is the list of docs/index.md. Below every command that writes a drawing
(`--svg FILE.svg`) the site shows that drawing, made by the very command.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from website import commands, gallery  # noqa: E402

SOURCE = "https://github.com/archsim/archsim/blob/main/"
COPIED = {"accuracy.md": "reports/accuracy.md", "claims-ledger.md": "reports/claims.md", "changelog.md": "CHANGELOG.md",
          "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}  # fmt: skip
"""Pages of the site that stand elsewhere in the repository."""

MARK = re.compile(r"^<!-- (?:file|insert|only|exit|not compared|generated|end|setup)\b[^\n]*-->\n", re.M)
LINK = re.compile(r"(?P<before>!?\[[^\]\n]*\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
CONSOLE = re.compile(r"^```console\n(?P<body>.*?)^```\n", re.M | re.S)
SEARCH = 'data-md-component="search" role="dialog" aria-label="Search"'
DRAWING = re.compile(r"--svg (?P<name>[\w.-]+\.svg)\b")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation: the headings and links of docs/index.md, then what is made here."""
    config.nav = [*sections((ROOT / "docs/index.md").read_text("utf-8")), *made_sections()]
    return config


def sections(index: str) -> Iterator[object]:
    """The start page, and a section for each heading of the index with the pages it links to."""
    yield {"Home": "index.md"}
    for part in index.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        pages = re.findall(r"^(?:-|\d+\.) \[([^\]]+)\]\(([\w/-]+\.md)\)", body, flags=re.M)
        if pages:
            yield {title: [{name: target} for name, target in pages]}


def made_sections() -> list[object]:
    """Navigation to the pages that are made at the build."""
    return [
        {"Reference": [{"Commands": ["commands/index.md", *commands.pages()]}, {"Python functions": "reference.md"},
                       {"Errors": "errors.md"}, {"Glossary": "glossary.md"}]},
        {"Gallery": [{"Architectures": "gallery.md"}, {"Reports": "reports.md"}]},
        {"How true": [{"Accuracy": "accuracy.md"}, {"Claims of articles": "claims-ledger.md"}]},
        {"About": [{"Changelog": "changelog.md"}, {"Contributing": "contributing.md"}, {"Security": "security.md"},
                   {"Cite": "citation.md"}]},
    ]  # fmt: skip


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page and picture that is made."""
    made: dict[str, str] = {
        **{page: (ROOT / path).read_text("utf-8") for page, path in COPIED.items()},
        **commands.made(), **gallery.drawings(), **gallery.reports(ROOT / "reports/examples"),
        "reference.md": reference(), "citation.md": citation(), "assets/site.css": css(),
        "assets/site.js": (ROOT / "website/site.js").read_text("utf-8"),
    }  # fmt: skip
    for path in sorted((ROOT / "docs").glob("*.md")):
        made |= drawn(path)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page without the marks that the tests read, with its drawings, and links to where the site has things."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    place = COPIED.get(page.file.src_uri, "docs/" + page.file.src_uri)
    text = CONSOLE.sub(lambda found: found[0] + figures(found["body"], page.file.src_uri), MARK.sub("", markdown))
    return LINK.sub(lambda found: relinked(found, place, page.file.src_uri), text)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A page whose search has a name, and whose tables have no heading without words: for those who hear it."""
    named = output.replace('data-md-component="search" role="dialog"', SEARCH)
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", named)


def relinked(found: re.Match[str], place: str, page: str) -> str:
    """A link as it leads from a page of the site: to a page there is, else to the source of the file."""
    target = found["target"]
    if "://" in target or target.startswith(("mailto:", "/")) or not (ROOT / place).exists():
        return found[0]  # of another site, or on a page that was made
    path = (ROOT / place).parent.joinpath(target).resolve()
    if not path.exists():
        return found[0]  # mkdocs says what is missing
    inside = path.relative_to(ROOT).as_posix()
    on_site = {source: name for name, source in COPIED.items()} | {"README.md": "index.md"}
    if inside.startswith("docs/"):
        leads = inside.removeprefix("docs/")
    elif inside in on_site:
        leads = on_site[inside]
    else:
        return f"{found['before']}{SOURCE}{inside}{found['anchor'] or ''})"
    return f"{found['before']}{os.path.relpath(leads, Path(page).parent)}{found['anchor'] or ''})"


def figures(body: str, page: str) -> str:
    """The drawings that the commands of one console block write."""
    return "".join(
        f'\n<figure class="drawing" markdown="span">\n'
        f"[![Drawing: {escape(line[2:])}]({place}){{ loading=lazy }}]({place})\n"
        "<figcaption>Drawn by the command above; a click opens it alone.</figcaption>\n</figure>\n"
        for line in body.splitlines()
        if line.startswith("$ archsim") and (found := DRAWING.search(line))
        for place in [f"figures/{Path(page).stem}/{found['name']}"]
    )


def drawn(page: Path) -> dict[str, str]:
    """Place in the site -> drawing, for every command of a page that writes one."""
    made: dict[str, str] = {}
    for block in CONSOLE.finditer(page.read_text("utf-8")):
        for line in block["body"].splitlines():
            found = DRAWING.search(line)
            if line.startswith("$ archsim") and found:
                made[f"figures/{page.stem}/{found['name']}"] = written(line[2:], found["name"])
    return made


def written(line: str, name: str) -> str:
    """The file that a command writes, run in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", *shlex.split(line)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if not (Path(folder) / name).exists():
            raise RuntimeError(f"`{line}` wrote no {name}:\n{done.stderr}")
        return (Path(folder) / name).read_text("utf-8")


def reference() -> str:
    """The page of the Python interface, from docstrings and signatures."""
    return (
        "# Python functions\n\nEach command is a function; [Python](python.md) shows them at work. Options are the "
        "commands' long flags in snake_case.\n\n::: archsim.api\n\n::: archsim.base.options\n"
    )


def citation() -> str:
    """How to cite archsim, from CITATION.cff."""
    import yaml

    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    names = " and ".join(author["name"] for author in cff["authors"])
    released = str(cff["date-released"])
    rows = {"title": f"{{{cff['title']}}}", "author": f"{{{names}}}", "version": cff["version"],
            "year": released[:4], "url": "https://github.com/archsim/archsim"}  # fmt: skip
    fields = "".join(f"  {key} = {{{value}}},\n" for key, value in rows.items())
    return (
        f"# Cite\n\n{cff['message']} Version {cff['version']} of {released}, {cff['license']}.\n\n"
        f"```bibtex\n@software{{archsim,\n{fields}}}\n```\n\n{cff['abstract']}\n"
    )


def css() -> str:
    """The style of the site."""
    return (ROOT / "website/site.css").read_text("utf-8")
