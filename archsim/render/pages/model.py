"""`archsim show MODEL` as a page: identity, shape and sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from archsim.base.units import format_count
from archsim.blocks.layer import Layer
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.towers import tower_params
from archsim.render.page import Page, Row, Section, bullets, facts, row
from archsim.spec.lower import lower
from archsim.spec.model import Model


def model_page(model: Model, file: str = "") -> Page:
    """The page of a model. file: where it comes from, where that is known."""
    sections = [_identity(model), _size(model)]
    sections.append(Section(title="Layers", rows=tuple(_layer_rows(model.layers))))
    if model.encoder is not None:
        sections.append(Section(title="Encoder layers", rows=tuple(_layer_rows(model.encoder.layers))))
    if model.notes:
        sections.append(bullets("Notes", model.notes))
    sources = tuple(
        row(s.id, f"{s.title} {s.url} (covers {', '.join(s.covers) or 'not stated'})") for s in model.sources
    )
    if sources:
        sections.append(Section(title="Sources", rows=sources))
    sections += [facts("File", [(file, " ")])] if file else []
    return Page(head=(model.title or model.name,), sections=tuple(sections))


def _identity(m: Model) -> Section:
    lineage = m.lineage
    changes = f": {', '.join(lineage.changes)}" if lineage and lineage.changes else ""
    return facts("Model", [
        ("name", m.name), ("organisation", m.org), ("released", m.released), ("architecture", m.architecture),
        ("aliases", ", ".join((*m.aliases, *m.hf_ids))), ("confidence", m.confidence),
        ("descends from", f"{lineage.parent or 'unknown'}{changes}" if lineage else None),
    ])  # fmt: skip


def _tower(name: str, size: int | None) -> str:
    return f"{name} {size:,}" if size else f"{name}, of unknown size"


def _size(m: Model) -> Section:
    one = lower(m, step_for(m, 1, 1))
    total, active = c.params(one), c.active_params(one)
    kv = c.state_bytes(one, role="kv")
    return facts("Size", [
        ("parameters", format_count(total)),
        ("active per token", format_count(active) if active != total else None),
        ("KV cache", f"{kv:,} B per token in bf16" if kv else None),
        ("d_model", f"{m.d_model:,}"), ("vocabulary", f"{m.vocab_size:,}"), ("layers", f"{m.n_layers:,}"),
        ("context", f"{m.max_context:,}" if m.max_context else None),
        ("stored in", ", ".join(f"{role}: {fmt}" for role, fmt in m.weights.items())),
        ("towers", ", ".join(_tower(name, size) for name, size in tower_params(m).items())),
    ])  # fmt: skip


def _layer_rows(layers: Iterable[Layer], depth: int = 0) -> list[Row]:
    rows = []
    for layer in layers:
        name = "  " * depth + f"{layer.repeat} ×" + (f" {layer.name}" if layer.name else "")
        rows.append(row(name, "" if layer.layers else " | ".join(_parts(layer))))
        rows += _layer_rows(layer.layers or (), depth + 1)
    return rows


def _parts(layer: Layer) -> Iterable[str]:
    for key in ("attention", "mixer", "cross_attention", "ffn"):
        block = getattr(layer, key)
        if block is not None:
            label = "" if key in ("attention", "ffn", "mixer") else key + " "
            yield f"{label}{describe_block(block)}"


def describe_block(block: Any) -> str:
    """A block in words: its kind and what its spec sets, `kind` and nested blocks by their kind only."""
    words = []
    for key in sorted(block.model_fields_set - {"kind"}, key=list(block.all_fields).index):
        value = getattr(block, key)
        if value is None or value is False:
            continue
        if hasattr(value, "model_fields_set"):
            inner = getattr(value, "kind", None) or describe_block(value)
            words.append(f"{key} {inner}")
        else:
            words.append(key if value is True else f"{key} {_number(value)}")
    kind = getattr(block, "kind", "")
    return f"{kind}: {', '.join(words)}" if kind else ", ".join(words)


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
