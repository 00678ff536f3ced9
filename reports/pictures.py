"""Pictures of the README: `python reports/pictures.py` writes docs/images/terminal.svg, the answer of one command.

With `--report CHROMIUM`, the path of a Chromium, also docs/images/report.png: the top of a report, which needs
playwright. `tests/docs/test_docs.py` writes the terminal anew with every other output, and compares it.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import archsim
from archsim.base.output_file import write_bytes, write_text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
MODEL, DEVICE = "llama2-70b", "h100"
SHOWN = ("Size", "Memory", "Speed", "Where")
LINE, LETTER, LEFT, TOP = 17, 7.83, 18, 46

STYLE = (
    "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328;"
    "white-space:pre}.b{font-weight:600}.p{fill:#1a6b3c}rect{fill:#fbfbf9;stroke:#c9ccd1}.bar{fill:#ececea}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8eb}.p{fill:#7fd19b}rect{fill:#15181c;stroke:#3a4048}"
    ".bar{fill:#20252b}}"
)


def terminal() -> str:
    """An estimate as a terminal shows it: the lines of the page in SVG, in the reader's colours."""
    parts = str(archsim.estimate(MODEL, DEVICE)).split("\n\n")
    kept = [parts[0], *(part for part in parts if part.startswith(SHOWN))]
    lines = [f"$ archsim estimate {MODEL} --hw {DEVICE}", *"\n\n".join(kept).split("\n")]
    width = round(2 * LEFT + LETTER * max(map(len, lines)))
    height = TOP + LINE * len(lines) + 6
    texts = "".join(row(n, line) for n, line in enumerate(lines) if line)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><title>archsim estimate {MODEL} --hw {DEVICE}</title><style>{STYLE}</style>'
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>'
        f'<rect class="bar" x=".5" y=".5" width="{width - 1}" height="24" rx="8"/>\n{texts}</svg>\n'
    )


def row(number: int, line: str) -> str:
    """One line of the terminal; the command in green, headings bold."""
    style = ' class="p"' if line.startswith("$") else ' class="b"' if line.startswith(SHOWN) else ""
    place = f'x="{LEFT}" y="{TOP + LINE * number}"'
    return f'<text {place}{style} xml:space="preserve">{escape(line)}</text>\n'


def report_picture(chromium: str) -> bytes:
    """The top of a report with its charts as PNG."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as run:
        file = Path(folder) / "report.html"
        write_text(file, archsim.report(MODEL, ["h100", "h200", "mi300x"], batch=4).html, force=True)
        browser = run.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1000}, color_scheme="light")
        page.goto(file.as_uri(), wait_until="load", timeout=90_000)
        page.wait_for_timeout(4000)  # the charts are drawn
        picture = page.screenshot()
        browser.close()
    return bytes(picture)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", metavar="CHROMIUM")
    asked = parser.parse_args()
    write_text(IMAGES / "terminal.svg", terminal(), force=True)
    if asked.report:
        write_bytes(IMAGES / "report.png", report_picture(asked.report), force=True)


if __name__ == "__main__":
    main()
