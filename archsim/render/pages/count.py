"""`archsim count` as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.base.notes import urgent
from archsim.base.number import Num
from archsim.base.units import format_bytes, format_count, format_flops
from archsim.counts.count import BlockCount, CountResult, windows_note
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Page, Row, Section, footer, percent, plural, row


def page(
    r: CountResult,
    *,
    inputs: Sequence[str] = (),
    asked: str = "",
    options: Mapping[str, object] = {},
    verbose: bool = False,
) -> Page:
    """The report. inputs: files behind it. asked: the model as the user spelt it, empty where no
    command asked: then there is none to go on with. options: the others, by name.
    """
    head = (
        f"{r.model.name}, {r.model.architecture}" + (f" ({r.model.org})" if r.model.org else ""),
        f"{r.formats.name} weights · batch {r.batch:,} · {r.input_len:,} tokens in"
        + ("" if r.source_len is None else f" · {r.source_len:,} of source"),
    )
    end = [("Basis", "everything here is counted from the spec; " + _convention(r))]
    end += [("Inputs", ", ".join(inputs))] if inputs else []
    tables = _params(r), _bytes(r), _flops(r), *_images(r), _blocks(r, verbose)
    sections = (*tables, footer(end), *([try_section(_next(asked, options))] if asked else []))
    return Page(head=head, notes=urgent(r.assumptions), sections=sections)


def _images(r: CountResult) -> tuple[Section, ...]:
    """What the encoder makes of the images of one request."""
    if r.images is None:
        return ()
    work = r.images
    size = f"{work.images.width:,} x {work.images.height:,} pixels, {work.patches:,} patches"
    cut = sum(n for n, _ in work.pictures)
    size += f" in {cut:,} pictures" if cut > 1 else ""
    rows = [
        row("tokens per image", f"{work.tokens:,}", size),
        row("tokens per request", f"{work.prompt_tokens:,}", plural(work.images.count, "image")),
        row("encoder", format_flops(work.to_dict()["flops"]), "FLOP of the encoder and its projector, per request"),
    ]
    return (Section(title="Images", rows=tuple(rows), align="lr"),)


def _convention(r: CountResult) -> str:
    shapes = "tied weights count once, buffers do not count"
    return f"{shapes}; 1 MAC = 2 FLOP" + (f"; with {', '.join(r.extra)}" if r.extra else "")


def _params(r: CountResult) -> Section:
    published = r.model.published
    exact = published.exact if published else None
    stated = f"published: {published.params}" if published and published.params is not None else ""
    match = stated if exact is None else "matches the published count" if exact == r.total else f"published: {exact:,}"
    rows = [_param("total", r.total, match)]
    if r.active != r.total:
        rows.append(_param("active per token", r.active, "excludes routed experts that a token does not use"))
    rows.append(_param("embedding", r.embedding, "input, position and untied output tables"))
    rows.append(_param("non-embedding", r.total - r.embedding, ""))
    rows += [
        _param("  " + name, n, percent(n / r.total)) for name, n in sorted(r.by_class.items(), key=lambda i: -i[1])
    ]
    lowered = {tower.name for tower in r.model.towers if tower.stages}
    rows += [
        _param("  " + name, n, percent(n / r.total) if name in lowered else "as published, not lowered")
        for name, n in r.extra.items()
    ]
    return Section(title="Parameters", rows=tuple(rows), align="lr")


def _param(name: str, n: int, note: str) -> Row:
    return row(name, format_count(n), note)


def _bytes(r: CountResult) -> Section:
    rows = [row("weights", f"{r.weight_bytes:,} B", format_bytes(r.weight_bytes), r.formats.name)]
    if r.kv_bytes_per_token:
        kv = r.formats.kv.name + windows_note(r.model, r.formats)
        rows.append(row("KV cache per token", f"{r.kv_bytes_per_token:,} B", "", kv))
        held = f"batch {r.batch:,} × {r.input_len:,} tokens"
        held += "" if r.source_len is None else f", {r.source_len:,} of source"
        rows.append(row("KV cache", f"{r.kv_bytes:,} B", format_bytes(r.kv_bytes), held))
    if r.state_bytes:
        rows.append(row("recurrent state", f"{r.state_bytes:,} B", format_bytes(r.state_bytes), "of one sequence"))
    return Section(title="Bytes", rows=tuple(rows), align="lrr")


def _flops(r: CountResult) -> Section:
    def line(name: str, get: str) -> Row:
        masked, full = getattr(r.masked, get), getattr(r.full, get)
        return row(name, format_flops(float(masked)), format_flops(float(full)), _per_token(masked, r))

    rows = [line(name, name) for name in ("matmul", "attention", "conv") if getattr(r.full, name)]
    rows.append(line("total", "total"))
    rows.append(line("elementwise, not in total", "elementwise"))
    header = ("causal or masked", "full square", "per token")
    return Section(title="FLOPs of one forward pass", rows=tuple(rows), align="lrrr", header=header)


def _per_token(flops: Num, r: CountResult) -> str:
    return format_flops(float(flops) / (r.batch * r.input_len))


def _blocks(r: CountResult, verbose: bool) -> Section:
    shown = [b for b in r.blocks if b.params or b.flops]
    rows = [_block(b) for b in shown if verbose or b.path.count(".") <= 1]
    hidden = len(shown) - len(rows)
    below = (f"{plural(hidden, 'inner block')} not shown (-v lists all)",) if hidden else ()
    header = ("runs", "parameters", "FLOP", "bytes")
    return Section(title="Blocks", rows=tuple(rows), align="lrrrr", header=header, below=below)


def _block(b: BlockCount) -> Row:
    flops = format_flops(float(b.flops)) if b.flops else ""
    depth = "  " * b.path.count(".")
    name = depth + b.path.rsplit(".", 1)[-1]
    return row(
        name, f"{b.count:,}", f"{b.params:,}" if b.params else "", flops, format_bytes(b.bytes) if b.bytes else ""
    )


def _next(asked: str, options: Mapping[str, object]) -> list[tuple[str, str]]:
    """Commands that go on from here, with what was asked as far as they take it."""
    changes = {"set": options["set"]}
    on = {name: options[name] for name in ("batch", "input_len", "weights", "kv_cache_dtype", "set")}
    return [
        (command_line("explain", asked, "params", **changes), "the formula behind the count"),
        (command_line("show", asked), "the spec with its sources"),
        (command_line("estimate", asked, hw="h100", **on), "memory and time on a device"),
    ]
