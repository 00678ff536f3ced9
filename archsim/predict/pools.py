"""Servers whose prompts and answers are computed by different replicas: their plans, and the links between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.options import ServerArguments
from archsim.base.units import parse_quantity
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import Formats
from archsim.counts.workload import Workload
from archsim.predict.served_engine import DecodeSide, Pools, ServedEngine, ServerRequest, serve
from archsim.serving.acceptance import Drafting
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model

DEGREES = ("devices", "tp", "pp", "ep", "dp")


WAYS = ("after", "layers")
"""When caches travel: after the prompt is computed, or each layer when it is."""


def parse_ratio(text: str) -> tuple[int, int]:
    """Replicas for prompts and for answers, of `--disaggregate P:D`. Raises UsageError."""
    parts = [part.strip() for part in str(text).split(":")]
    if len(parts) != 2 or not all(part.isdecimal() and 0 < len(part) < 6 and int(part) for part in parts):
        raise UsageError(f"`--disaggregate` is replicas for prompts and for answers, as 1:3, not {quote(str(text))}")
    return int(parts[0]), int(parts[1])


def parse_plan(text: str | None, option: str) -> dict[str, int]:
    """Degrees of `--prefill-plan tp=4,ep=4`. Raises UsageError."""
    found: dict[str, int] = {}
    for part in filter(None, (text or "").split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in DEGREES or name in found or not (value.isdecimal() and 0 < len(value) < 6 and int(value)):
            raise UsageError(f"`--{option}`: {quote(part)} is no degree", hints=(f"tp=4; also {', '.join(DEGREES)}",))
        found[name] = int(value)
    return found


def parse_link(text: str | float | None) -> float | None:
    """Bytes per second of `--kv-link`. Raises UsageError."""
    if text is None:
        return None
    try:
        rate = float(parse_quantity(f"{text} B/s" if isinstance(text, (int, float)) else text, "B/s"))
    except (ArchsimError, ValueError):
        rate = 0.0
    if not rate > 0:
        raise UsageError(f"`--kv-link` is bytes per second that each device sends, as 50 GB/s, not {quote(str(text))}")
    return rate


def pools_of(asked: ServerArguments) -> Pools | None:
    """The two pools that options describe; None where all replicas are alike. Raises UsageError, SpecError."""
    if asked.get("disaggregate") is None:
        for name in ("prefill_plan", "decode_plan", "decode_hw", "kv_link", "kv_transfer"):
            if asked.get(name) is not None:
                raise UsageError(f"`--{name.replace('_', '-')}` belongs to `--disaggregate P:D`")
        return None
    if asked.get("replicas") is not None:
        raise UsageError("leave out `--replicas`: `--disaggregate P:D` says how many there are")
    device, way = asked.get("decode_hw"), str(asked.get("kv_transfer") or WAYS[0])
    if way not in WAYS:
        raise UsageError(f"`--kv-transfer` is {' or '.join(WAYS)}, not {quote(way)}")
    return Pools(
        decode_hardware=load_hardware(device) if isinstance(device, str) else device,
        prefill_plan=parse_plan(asked.get("prefill_plan"), "prefill-plan"),
        decode_plan=parse_plan(asked.get("decode_plan"), "decode-plan"), link=parse_link(asked.get("kv_link")),
        by_layer=way == WAYS[1],
    )  # fmt: skip


def serve_fleet(model: Model, hardware: Hardware, request: ServerRequest, load: Workload) -> ServedEngine:
    """The server that is asked for, of one pool or two. Raises as `serve`."""
    if request.pools is None:
        return serve(model, hardware, request, load)
    return serve_in_pools(model, hardware, request, request.pools, load)


def ratios_of(server: ServedEngine) -> list[tuple[int, int]]:
    """Replicas for prompts and for answers on the devices of a server of two pools, all that can be used."""
    assert server.decode is not None
    first, second = server.plan.devices, server.decode.server.plan.devices
    total = server.devices
    return [(p, (total - p * first) // second) for p in range(1, (total - second) // first + 1)]


def with_ratio(server: ServedEngine, ratio: tuple[int, int]) -> ServedEngine:
    """The same server with other numbers of replicas."""
    return replace(server, fleet=replace(server.fleet, replicas=ratio[0], decode_replicas=ratio[1]))


def with_drafting(server: ServedEngine, drafting: Drafting | None) -> ServedEngine:
    """The same server with drafts of the same kind, of which others are accepted."""
    if server.decode is None:
        return replace(server, drafting=drafting)
    return replace(server, decode=replace(server.decode, server=replace(server.decode.server, drafting=drafting)))


def with_plan(request: ServerRequest, plan: dict[str, int]) -> ServerRequest:
    """The server with another plan; what is not said of it stays."""
    if not plan:
        return request
    return replace(
        request, devices=plan.get("devices", "auto"), tp=plan.get("tp"), pp=plan.get("pp"), ep=plan.get("ep"),
        dp=plan.get("dp"),
    )  # fmt: skip


def serve_in_pools(
    model: Model, hardware: Hardware, request: ServerRequest, pools: Pools, load: Workload
) -> ServedEngine:
    """A server of two pools. Raises as `serve`."""
    devices_of = (hardware, pools.decode_hardware or hardware)
    plans = (pools.prefill_plan, pools.decode_plan)
    answers = replace(request, settings=pools.decode_settings or request.settings)
    asked = (replace(request, drafting=None), answers)  # prompts have no drafts
    first, second = (
        serve(model, device, with_plan(one, plan), load)
        for one, device, plan in zip(asked, devices_of, plans, strict=True)
    )
    if first.formats.kv.name != second.formats.kv.name:
        raise UsageError("both pools keep their caches in one format")
    fleet, link = request.fleet, pools.link
    if link is None:
        devices = first.plan.devices * fleet.replicas + second.plan.devices * fleet.decode_replicas
        link = min(_link_of(device, devices) for device in devices_of)
    layers = model.n_layers if pools.by_layer else 1
    second = replace(second, encoded=())  # prompts are encoded where they are computed
    side = DecodeSide(second, link, prompt_bytes(model, second.formats), layers)
    others = tuple(warning for warning in second.warnings if warning not in first.warnings)
    return replace(first, decode=side, warnings=(*first.warnings, *others))


def _link_of(device: Hardware, devices: int) -> float:
    """Bytes per second that a device sends over the fabric that joins so many. Raises UsageError."""
    try:
        return device.link(devices).bytes_per_s_per_direction
    except ArchsimError as error:
        raise UsageError(f"the KV transfer rate is not known: {error}", hints=("give --kv-link, as 50 GB/s",)) from None


def prompt_bytes(model: Model, formats: Formats) -> Callable[[int], float]:
    """Bytes of the cache of a prompt of so many tokens: of graphs at powers of two, and lines between them."""
    known: dict[int, float] = {}

    def at(tokens: int) -> float:
        if tokens not in known:
            graph = formats.apply(lower(model, step_for(model, 1, 1, tokens - 1)))
            known[tokens] = float(cast(int, c.state_bytes(graph)))
        return known[tokens]

    def size(tokens: int) -> float:
        low = 1 << (max(tokens, 1).bit_length() - 1)
        return at(low) + (at(2 * low) - at(low)) * (tokens - low) / low

    return size
