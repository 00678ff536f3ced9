"""`archsim show`: one document as data and as a page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from archsim.base.diagnostics import inert, quote
from archsim.base.errors import NoSuchName, UnknownName, UsageError, did_you_mean
from archsim.base.input_file import read_input
from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_rate
from archsim.render.page import Page, Section, bullets, facts, plural, row
from archsim.render.provenance import LARGEST, digest, display_path
from archsim.spec.catalog import Kind, Resolved, resolve
from archsim.spec.hardware import Hardware, load_system
from archsim.spec.loader import read

if TYPE_CHECKING:
    from archsim.engines.names import EngineChoice
    from archsim.render.drawing.palette import Theme
    from archsim.spec.format import FormatSpec

DocumentKind = Literal["model", "hw", "format", "engine"]
CATALOGS: dict[DocumentKind, Kind] = {"model": "models", "hw": "hw", "format": "formats", "engine": "engines"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDocument:
    """A document that a name stands for."""

    kind: DocumentKind
    name: str
    resolved: Resolved

    def text(self) -> str:
        """The file as it is, control characters but line ends and tabs escaped."""
        from archsim.importers.opening import checkpoint_file

        path = checkpoint_file(str(self.resolved.path)) or self.resolved.path
        lines = read_input(path, LARGEST).decode("utf-8", errors="replace").splitlines()
        return "".join(inert(line.replace("\t", "    ")) + "\n" for line in lines)

    def file(self) -> str:
        """Where the document is, and the start of its hash."""
        return f"{display_path(self.resolved.path, self.resolved.origin)}@{digest(self.resolved.path)}"


def find(name: str, kind: str | None = None) -> NamedDocument:
    """The model, device, format or engine of that name, looked for in this order unless `kind` says which; last the
    checkpoint in a folder that is called so.

    Raises UnknownName with the closest names of all kinds, SpecError for a path where there is no file.
    """
    from archsim.importers.opening import checkpoint_file

    errors = []
    for each in CATALOGS:
        if kind in (None, each):
            try:
                found = NamedDocument(kind=each, name=name, resolved=_resolve(each, name))
            except UnknownName as error:
                errors.append(error)
            else:
                return found if kind or found.resolved.origin != "path" else _by_content(found)
    if kind in (None, "model") and os.sep not in name and checkpoint_file(name) is not None:
        return find(os.path.join(os.curdir, name), kind)
    raise _unknown_name(name, errors)


def _resolve(kind: DocumentKind, name: str) -> Resolved:
    """Engines have spellings and versions of their own."""
    if kind != "engine" or name.endswith((".yaml", ".yml")):
        return resolve(CATALOGS[kind], name)
    from archsim.engines.names import engine_and_version

    return resolve("engines", engine_and_version(name)[0])


def _by_content(found: NamedDocument) -> NamedDocument:
    """A path does not say what it leads to; the document's `schema` or fields do."""
    if found.resolved.path.suffix not in (".yaml", ".yml"):
        return found
    top = read(found.resolved.path)
    device = str(top.get("schema", "")).startswith("archsim.hardware") or "bandwidth" in top.get("memory", ())
    format_ = "bytes" in top and "compute" in top
    engine = str(top.get("schema", "")).startswith("archsim.engine")
    kind: DocumentKind = "hw" if device else "format" if format_ else "engine" if engine else "model"
    return NamedDocument(kind=kind, name=found.name, resolved=found.resolved)


def _unknown_name(name: str, errors: list[UnknownName]) -> UnknownName:
    """The complaint about a name, with the closest names of every kind; a known name without a spec first."""
    known = [e for e in errors if not isinstance(e, NoSuchName)]
    if known or len(errors) == 1:
        return (known or errors)[0]
    close = [hint for e in errors if isinstance(e, NoSuchName) for hint in did_you_mean(e.close)]
    hints = (*close, "`archsim list models|hw|formats|engines` shows what there is")
    return UnknownName(f"no model, device, format or engine named {quote(name)}", hints=hints)


def document(found: NamedDocument) -> JsonObject:
    """The JSON object: a device as `archsim.hardware/1`, others as their validated document with its file."""
    if found.kind == "hw" and is_system(found):
        return load_system(found.resolved.path).model_dump(mode="json", by_alias=True) | _place(found)
    if found.kind == "hw":
        from archsim.spec.load import load_hardware

        return load_hardware(found.name).to_dict() | _place(found)
    if found.kind == "format":
        from archsim.spec.format import load_format

        spec = load_format(found.name)
        data = {"schema": "archsim.format/1", "name": spec.name, "document": spec.model_dump(mode="json")}
        return data | {"sources": list(spec.sources)} | _place(found)
    if found.kind == "engine":
        rules = _engine_rules(found).rules
        return rules.model_dump(mode="json", by_alias=True) | _place(found)
    from archsim.importers.opening import load_model

    return load_model(found.name).to_dict() | _place(found)


def drawing(found: NamedDocument, theme: Theme) -> str:
    """A model as an SVG file. Raises UsageError for what is no model."""
    if found.kind != "model":
        noun = {"hw": "a device", "format": "a format", "engine": "an engine"}[found.kind]
        raise UsageError(f"`--svg` draws models, and {quote(found.name)} is {noun}")
    from archsim.importers.opening import load_model
    from archsim.render.drawing.figure import model_svg

    return model_svg(load_model(found.name), theme)


def is_system(found: NamedDocument) -> bool:
    """Whether the document is a machine of several devices rather than a device."""
    return str(read(found.resolved.path).get("schema", "")).startswith("archsim.system")


def _place(found: NamedDocument) -> JsonObject:
    return {"file": str(found.resolved.path), "origin": found.resolved.origin}


def page(found: NamedDocument) -> Page:
    """The document for people."""
    if found.kind == "hw":
        from archsim.spec.load import load_hardware

        return _system(found) if is_system(found) else device_page(load_hardware(found.name), found.file())
    if found.kind == "format":
        return _format(found)
    if found.kind == "engine":
        from archsim.render.pages.engine import engine_page

        return engine_page(_engine_rules(found), found.file())
    from archsim.importers.opening import load_model
    from archsim.render.pages.model import model_page

    return model_page(load_model(found.name), found.file())


def _engine_rules(found: NamedDocument) -> EngineChoice:
    """An engine's rules at the version that its name has; of a file, the newest."""
    from archsim.engines.names import EngineChoice, choose_engine
    from archsim.spec.engine import load_engine

    if found.resolved.origin != "path":
        return choose_engine(found.name)
    rules = load_engine(found.name)
    return EngineChoice(name=rules.name, version="", rules=rules, notes=())


def device_page(hw: Hardware, file: str = "") -> Page:
    """The page of a device. file: where it comes from, where that is known."""
    data = hw.to_dict()
    peaks = tuple(row(dtype, format_rate(peak, "FLOP/s")) for dtype, peak in data["peaks_flops"].items())
    identity = {
        "id": hw.id,
        "vendor": hw.vendor,
        "kind": hw.per,
        "architecture": hw.arch.family,
        "released": hw.arch.released,
        "announced": "figures of the announcement, not measured by anyone yet" if hw.announced else None,
        "aliases": ", ".join(hw.aliases),
        "confidence": hw.confidence,
    }
    sections = [
        facts("Device", identity.items()),
        Section(title="Dense peaks", rows=peaks, align="lr"),
        _memory_and_links(hw),
        *_prices(hw),
        *_notes(hw.notes),
        _sources(data["sources"]),
        *([facts("File", [(file, " ")])] if file else []),
    ]
    return Page(head=(hw.name,), sections=tuple(sections))


def _prices(hw: Hardware) -> list[Section]:
    """What the device is rented for, on which terms and when, and what it was sold for."""
    from archsim.cost.price_table import prices_of

    rents = [row(p.provider, p.terms, f"{p.usd_per_device_hour:,.2f}", "", p.as_of or "undated") for p in prices_of(hw)]
    bought = [row(cost.provider, "", "", f"{cost.usd:,.0f}", cost.date) for cost in hw.cost if cost.usd is not None]
    heads = ("terms", "$ per hour", "$ to buy", "date")
    rows = (*rents, *bought)
    return [Section(title="Prices", rows=rows, align="llrrl", header=heads)] if rows else []


def _memory_and_links(hw: Hardware) -> Section:
    link = hw.link_bytes_per_s
    figures = {
        "memory": f"{hw.memory_bytes:,} B ({format_bytes(hw.memory_bytes)}), {hw.memory.type}",
        "bandwidth": format_rate(hw.bandwidth, "B/s"),
        "L2": format_bytes(hw.l2_bytes) if hw.l2_bytes else None,
        "link": f"{format_rate(link, 'B/s')} per direction" if link else None,
        "scale-up domain": plural(hw.max_domain, "device"),
        "power limit": f"{hw.tdp_w:,} W" if hw.tdp_w else None,
    }
    return facts("Memory and links", figures.items())


def _sources(sources: list[JsonObject]) -> Section:
    rows = []
    for source in sources:
        text = f"{source['kind']}: {source['title']} {source['url'] or ''}".strip()
        rows.append(row(source["id"], f"{text} (covers {', '.join(source['covers'])})"))
    return Section(title="Sources", rows=tuple(rows))


def _system(found: NamedDocument) -> Page:
    system = load_system(found.resolved.path)
    levels = tuple(
        row(level.name, level.topology, f"{level.domain:,} devices" if level.domain else "", level.per_direction or "")
        for level in system.fabric
    )
    shape = facts("System", [("id", system.id), ("devices", f"{system.count:,} × {system.device}")])
    fabric = Section(title="Fabric, per direction and device", rows=levels)
    return Page(
        head=(system.name,), sections=(shape, fabric, *_notes(system.notes), facts("File", [(found.file(), " ")]))
    )


def _notes(notes: tuple[str, ...]) -> list[Section]:
    return [bullets("Notes", notes)] if notes else []


def _mixture_facts(spec: FormatSpec) -> list[tuple[str, str]]:
    """What a file type is made of, one rule a line."""
    assert spec.mixture is not None
    rules = [
        (
            "" if i else "rules, first match",
            " ".join([", ".join(r.tensors), *_conditions(r.layers, r.when.model_dump(exclude_none=True)), "→", r.use]),
        )
        for i, r in enumerate(spec.mixture.rules)
    ]  # fmt: skip
    return [
        ("name", spec.name), ("aliases", ", ".join(spec.aliases)), ("matrices", spec.mixture.default),
        ("vectors", spec.mixture.vectors), *rules, ("computed in", spec.compute),
    ]  # fmt: skip


def _conditions(layers: str, when: JsonObject) -> list[str]:
    """The conditions of a rule in words."""
    named = [f"layers {layers}"] if layers != "all" else []
    stated = [f"{key.replace('_', ' ')} {value}".lower() for key, value in when.items()]
    return [f"({', '.join(named + stated)})"] if named or stated else []


def _format(found: NamedDocument) -> Page:
    from archsim.spec.format import load_format

    spec = load_format(found.name)
    fmt = spec.format()
    applies = spec.applies_to if isinstance(spec.applies_to, str) else ", ".join(spec.applies_to)
    block = f"{fmt.block[0]} × {fmt.block[1]} elements in {fmt.bytes:,} bytes"
    plain = [
        ("name", spec.name), ("aliases", ", ".join(spec.aliases)), ("bits per element", f"{fmt.bits:.5g}"),
        ("block", block), ("computed in", spec.compute), ("applies to", applies),
        ("as a cache", "yes" if spec.kv else "no"),
    ]  # fmt: skip
    section = facts("Format", plain if spec.mixture is None else _mixture_facts(spec))
    sources = [bullets("Sources", spec.sources)] if spec.sources else []
    return Page(
        head=(spec.title,), sections=(section, *_notes(spec.notes), *sources, facts("File", [(found.file(), " ")]))
    )
