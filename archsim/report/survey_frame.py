"""A page around its body that needs nothing else: no script, no request, light and dark, screen and paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--paper:#fff;--line:#d0d7de;--good:#00795a;--near:#8a5a00;
--bad:#a3341f;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#a58400;--c5:#56b4e9;--c6:#444c56;--c7:#9aa4ae}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9ea7b1;--paper:#0f1318;--line:#343b44;--good:#2fd3a6;
--near:#f0c060;--bad:#ff9a8a;--c0:#56b4e9;--c1:#ff9a5c;--c2:#2fd3a6;--c3:#e79cc8;--c4:#f0e442;--c5:#8ab8ff;
--c6:#d0d7de;--c7:#7d8792}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:1.2rem 1rem 3rem;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0}
h2{font-size:1.2rem;margin:2rem 0 .3rem}h3{font-size:1rem;margin:1.2rem 0 .3rem}p{margin:.3rem 0;max-width:80ch}
.dim,caption,figcaption{color:var(--dim)}.scroll{overflow-x:auto;margin:.3rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92em;width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;
overflow-wrap:break-word}th{font-weight:600;color:var(--dim);white-space:nowrap}td.r,th.r{text-align:right}td.n{white-space:nowrap}
.true{color:var(--good)}.approximately{color:var(--near)}.false{color:var(--bad)}.uncheckable{color:var(--dim)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.2rem}
figure{margin:0;min-width:0}figure>svg{width:100%;height:auto;display:block}figcaption{font-size:.9em}
svg text{fill:var(--dim);font-size:12px}.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;
margin:.3rem 0;font-size:.9em}.key{width:1em;height:1em;margin-right:.35em;vertical-align:-.1em}
rect.bar{stroke:var(--paper);stroke-width:1}
@media print{:root{color-scheme:light}body{max-width:none}figure,tr{break-inside:avoid}}
"""


def framed(title: str, lines: Iterable[str], body: str) -> str:
    """A whole document. title and lines are text, body is HTML that is safe already."""
    from archsim import __version__

    colours = "".join(f".c{i}{{fill:var(--c{i})}}" for i in range(8))
    told = "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(title)}</title>'
        f"<style>{STYLE}{colours}</style></head>\n<body>\n<main><h1>{escape(title)}</h1>\n{told}{body}"
        f'<p class="dim">archsim {escape(__version__)}</p>\n</main>\n</body>\n</html>\n'
    )


def table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], classes: Sequence[str] = ()
) -> str:
    """A table of plain text, with a heading; classes: one for each column."""
    marks = [f' class="{mark}"' if mark else "" for mark in (*classes, *[""] * len(header))]
    heads = "".join(f'<th scope="col"{marks[i]}>{escape(text)}</th>' for i, text in enumerate(header))
    body = "".join(
        "<tr>" + "".join(f"<td{marks[i]}>{escape(text)}</td>" for i, text in enumerate(cells)) + "</tr>\n"
        for cells in rows
    )
    name = escape(title, quote=True)
    return (
        f'<h3>{name}</h3><div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"<table><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
    )
