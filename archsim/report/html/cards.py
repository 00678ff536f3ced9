"""What is compared, what the figures rest on, and where the inputs come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from archsim.base.errors import ArchsimError
from archsim.base.units import format_bytes, format_count, format_rate
from archsim.report.html.markup import Cell, details, link, name_of, paragraph, safe, table
from archsim.report.html.study import Candidate, Study
from archsim.sim.counting import kv_growth
from archsim.sim.formats import choose_formats
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

ANCESTORS = 6
"""Models before the one asked for that a family line shows."""

Facts = Mapping[str, str]


def compared(study: Study) -> str:
    """Models and devices side by side: what differs, then what is the same, then the sources."""
    models = {m.name: m for m in study.models}
    by_name = {c.answer.model.name: c for c in reversed(study.candidates)}
    cards = {name_of(name): _model(m, by_name[name]) for name, m in models.items()}
    hardware = {d.id: _device(d) for d in study.devices}
    lines = "".join(_line_of_descent(m) for m in models.values())
    return (
        "<h3>Models</h3>" + _side_by_side("Models", cards) + lines
        + "<h3>Devices</h3>" + _side_by_side("Devices", hardware) + details("Sources", _sources(study))
    )  # fmt: skip


def _side_by_side(caption: str, cards: Mapping[str, Facts]) -> str:
    """A table of what differs; what is the same is folded away."""
    keys = list(dict.fromkeys(key for card in cards.values() for key in card))
    rows = [(key, [card.get(key, "–") for card in cards.values()]) for key in keys]
    alone = len(cards) == 1
    differ = [[key, *values] for key, values in rows if alone or len(set(values)) > 1]
    same = [[key, values[0]] for key, values in rows if not alone and len(set(values)) == 1]
    made = table(caption if alone else f"{caption}: what differs", ["", *cards], differ)
    return made + (
        details("The same in all", table(f"{caption}: the same in all", ["", ""], same)) if same else ""
    )


def _model(m: Model, c: Candidate) -> Facts:
    e = c.answer
    published = m.published.params if m.published else None
    found = {
        "title": name_of(m.title or m.name), "released": m.released or "unknown",
        "parameters": format_count(e.params_total),
        "active per token": format_count(e.params_active), "published as": name_of(published or "–"),
        "architecture": m.architecture, "layers": f"{m.n_layers:,}", "width": f"{m.d_model:,}",
        "vocabulary": f"{m.vocab_size:,}", "made for": f"{m.max_context:,} tokens" if m.max_context else "not stated",
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


def _line_of_descent(model: Model) -> str:
    """The family line with years, as far as the catalog knows it."""
    strip: list[str] = []
    seen: set[str] = set()
    current: Model | None = model
    while current is not None and current.name not in seen and len(strip) <= ANCESTORS:
        seen.add(current.name)
        year = (current.released or "")[:4]
        strip.append(f"{name_of(current.name, 40)}{f' ({year})' if year else ''}")
        parent = current.lineage.parent if current.lineage else None
        current = _found(parent)
        if parent and current is None:
            strip.append(name_of(parent, 40))
    return paragraph("Descent: " + " → ".join(reversed(strip))) if len(strip) > 1 else ""


def _found(name: str | None) -> Model | None:
    from archsim.spec.load import load_model

    if not name or "/" in name or "\\" in name:
        return None  # a name of the catalog, never a file that a spec points to
    try:
        return load_model(name)
    except ArchsimError:
        return None


def _sources(study: Study) -> str:
    parts = []
    for model in {m.name: m for m in study.models}.values():
        listed = [(s.url, s.title or s.id, s.covers) for s in model.sources]
        parts.append(_listed(name_of(model.title or model.name), listed))
    for device in study.devices:
        listed = [(s.url or "", s.title or key, s.covers) for key, s in device.sources.items()]
        parts.append(_listed(name_of(device.name), listed))
    return "".join(parts)


def _listed(title: str, sources: Iterable[tuple[str, str, Sequence[str]]]) -> str:
    items = "".join(
        f"<li>{link(url, text)} <span class='dim'>for {safe(', '.join(covers) or 'the whole', 200)}</span></li>"
        for url, text, covers in sources
    )
    return f"<h4>{safe(title)}</h4><ul>{items or '<li>none given</li>'}</ul>"


# ------------------------------------------------------------------ what it rests on
def assumptions(study: Study) -> str:
    """Every assumption once, with the candidates that it is made for, then the warnings."""
    made = _collected((c.label, c.answer.assumptions) for c in study.candidates)
    warned = _collected(
        (c.label, (*c.answer.warnings, *([c.refusal] if c.refusal else []))) for c in study.candidates
    )
    count = len(study.candidates)
    parts = [_numbered(made, count)]
    if warned:
        parts += ["<h3>Warnings</h3>", _numbered(warned, count)]
    return "".join(parts)


def _collected(said: Iterable[tuple[str, Sequence[str]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, notes in said:
        for note in notes:
            found.setdefault(note, []).append(label)
    return found


def _numbered(notes: Mapping[str, Sequence[str]], count: int) -> str:
    items = []
    for note, labels in notes.items():
        of = "" if len(labels) == count else f' <span class="dim">({safe(", ".join(labels))})</span>'
        items.append(f"<li>{safe(note)}{of}</li>")
    return f"<ol>{''.join(items)}</ol>\n"


def inputs(study: Study) -> list[list[str | Cell]]:
    """The files behind the report with the start of their SHA-256."""
    from archsim.report.provenance import inputs as files

    rows: list[list[str | Cell]] = []
    for kind, names in (("models", study.asked.models), ("hw", study.asked.hw)):
        for name in names:
            try:
                found = ", ".join(files(**{kind: name}))
            except (ArchsimError, OSError):
                found = "given as an object"
            rows.append([name_of(name), found])
    return rows
