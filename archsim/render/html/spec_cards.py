"""What is compared, what the figures rest on, and where the inputs come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from archsim.base.errors import ArchsimError
from archsim.base.notes import Note
from archsim.base.units import format_bytes, format_count, format_rate
from archsim.counts.count import kv_growth
from archsim.counts.formats import choose_formats
from archsim.render.html.candidates import Candidate, Study
from archsim.render.html.effects import effect_text
from archsim.render.html.markup import WEB, Cell, details, link, list_names, name_of, safe, table
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

Facts = Mapping[str, str]
N = TypeVar("N", Note, str)


def compare_specs(study: Study) -> str:
    """Models and devices side by side: what differs, then what is the same, then the sources."""
    models = {m.name: m for m in study.models}
    by_name = {c.answer.model.name: c for c in reversed(study.candidates)}
    cards = {name_of(name): _model(m, by_name[name]) for name, m in models.items()}
    hardware = {d.id: _device(d) for d in study.devices}
    return (
        '<div class="pair"><div><h3>Models</h3>' + _side_by_side("Models", cards)
        + "</div><div><h3>Devices</h3>" + _side_by_side("Devices", hardware) + "</div></div>"
        + details("Sources", _sources(study), "long sources")
    )  # fmt: skip


def _side_by_side(caption: str, cards: Mapping[str, Facts]) -> str:
    """A table of what differs; what is the same is folded away."""
    keys = list(dict.fromkeys(key for card in cards.values() for key in card))
    rows = [(key, [card.get(key, "–") for card in cards.values()]) for key in keys]
    alone = len(cards) == 1
    differ = [[key, *values] for key, values in rows if alone or len(set(values)) > 1]
    same = [[key, values[0]] for key, values in rows if not alone and len(set(values)) == 1]
    made = table(caption if alone else f"{caption}: what differs", ["", *cards], differ)
    return made + (details("Equal in all", table(f"{caption}: equal in all", ["", ""], same)) if same else "")


def _model(m: Model, c: Candidate) -> Facts:
    e = c.answer
    published = m.published.params if m.published else None
    found = {
        "title": name_of(m.title or m.name), "released": m.released or "unknown",
        "parameters": format_count(e.params_total),
        "active per token": format_count(e.params_active), "published as": name_of(published or "–"),
        "architecture": m.architecture, "layers": f"{m.n_layers:,}", "width": f"{m.d_model:,}",
        "vocabulary": f"{m.vocab_size:,}",
        "context length": f"{m.max_context:,} tokens" if m.max_context else "not stated",
        "stored in": name_of(", ".join(f"{role} {fmt}" for role, fmt in m.weights.items()), 120),
    }  # fmt: skip
    if m.cached:
        grown = kv_growth(m, choose_formats(m))
        found["cache per token"] = f"{grown:,} B in 16 bits"
    return found


def _device(d: Hardware) -> Facts:
    peaks = {name: f"{value / 1e12:,.4g} TFLOP/s" for name, value in d.to_dict()["peaks_flops"].items()
             if not name.startswith(("fp64", "tf32"))}  # fmt: skip
    link_rate = d.link_bytes_per_s
    ridge = d.peak_flops("bf16").flops / d.bandwidth
    return {
        "name": name_of(d.name), "memory": format_bytes(d.memory_bytes), "bandwidth": format_rate(d.bandwidth, "B/s"),
        **{f"peak {name}": text for name, text in peaks.items()},
        "bf16 ridge": f"{ridge:,.4g} FLOP per byte",
        "links": f"{format_rate(link_rate, 'B/s')} per direction" if link_rate else "none listed",
        "joined directly": f"{d.max_domain:,}", "confidence": d.confidence,
    }  # fmt: skip


def _sources(study: Study) -> str:
    parts = []
    for model in {m.name: m for m in study.models}.values():
        listed = [(s.url, s.title or s.id, s.covers) for s in model.sources]
        parts.append(_list_rows(name_of(model.title or model.name), listed))
    for device in study.devices:
        listed = [(s.url or "", s.title or key, s.covers) for key, s in device.sources.items()]
        parts.append(_list_rows(name_of(device.name), listed))
    return "".join(parts)


def _list_rows(title: str, sources: Iterable[tuple[str, str, Sequence[str]]]) -> str:
    items = "".join(
        f"<li>{link(url, text)} <span class='dim'>for {safe(', '.join(covers) or 'the whole', 200)}</span></li>"
        for url, text, covers in sources
    )
    return f"<h4>{safe(title)}</h4><ul>{items or '<li>none given</li>'}</ul>"


# ------------------------------------------------------------------ what it rests on
def assumptions(study: Study) -> str:
    """Every assumption once with its effect if wrong and the candidates it is made for, then the warnings."""
    made = _collect((c, c.answer.assumptions) for c in study.candidates)
    refused = ((c, (*map(str, c.answer.warnings), *filter(None, [c.refusal]))) for c in study.candidates)
    warned = _collect(refused)
    effects = {note: f"If wrong: {effect_text(note, cases, study.asked)}." for note, cases in made.items()}
    parts = [_number_sources(made, len(study.candidates), effects)]
    if warned:
        parts += ["<h3>Warnings</h3>", _number_sources(warned, len(study.candidates), {})]
    return "".join(parts)


def _collect(said: Iterable[tuple[Candidate, Sequence[N]]]) -> dict[N, list[Candidate]]:
    found: dict[N, list[Candidate]] = {}
    for candidate, notes in said:
        for note in notes:
            found.setdefault(note, []).append(candidate)
    return found


def _number_sources(notes: Mapping[N, Sequence[Candidate]], count: int, effects: Mapping[N, str]) -> str:
    items = []
    for note, made in notes.items():
        of = "" if len(made) == count else f' <span class="dim">({safe(list_names([c.label for c in made]))})</span>'
        then = f'<br><span class="effect">{safe(effects[note])}</span>' if note in effects else ""
        items.append(f"<li>{safe(str(note))}{of}{then}</li>")
    return f"<ol>{''.join(items)}</ol>\n"


def inputs(study: Study) -> list[list[str | Cell]]:
    """The files behind the report with the start of their SHA-256."""
    from archsim.render.provenance import inputs as files

    urls = {"models": [[s.url for s in m.sources] for m in study.models],
            "hw": [[s.url or "" for s in d.sources.values()] for d in study.devices]}  # fmt: skip
    rows: list[list[str | Cell]] = []
    for kind, names in (("models", study.asked.models), ("hw", study.asked.hw)):
        for name, known in zip(names, urls[kind], strict=False):
            try:
                path, _, digest = ", ".join(files(**{kind: name})).rpartition("@")
            except (ArchsimError, OSError):
                path, digest = "given as an object", ""
            url = next((url for url in known if WEB.fullmatch(url)), "")
            source = Cell(name_of(url.partition("//")[2], 60), left=True, url=url) if url else Cell("–", left=True)
            rows.append([name_of(name), Cell(path, left=True), Cell(digest, left=True), source])
    return rows
