"""What a rank keeps in the host's memory, and what its way over the host link takes.

Saved tensors go out behind the forward and come back before the backward of their layer; optimizer states go through
the device while it updates the weights. An update on the host's processor (ZeRO-Offload, arXiv:2101.06840) reads and
writes as many bytes of the host's memory and is priced alike.
"""

from __future__ import annotations

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.units import parse_quantity
from archsim.spec.hardware import Hardware

KINDS = ("optimizer", "activations")
"""What can be kept on the host."""

Offload = frozenset[str]
NOTHING: Offload = frozenset()


def offload_of(text: str | None) -> Offload:
    """`optimizer`, `activations`, both with a comma between, or `none`. Raises UsageError for anything else."""
    words = [word.strip() for word in (text or "none").split(",") if word.strip()]
    found = frozenset(words) - {"none"}
    unknown = sorted(found - set(KINDS))
    if unknown or not words:
        hints = (f"one of {', '.join(KINDS)}, both with a comma between, or none",)
        raise UsageError(f"`--offload` has no {quote(unknown[0] if unknown else text)}", hints=hints)
    return found


def offload_text(offload: Offload) -> str:
    """As it is typed."""
    return ",".join(kind for kind in KINDS if kind in offload) or "none"


def host_rate(hardware: Hardware) -> float:
    """Bytes per second and direction between a device and its host. Raises UsageError where there is no such link."""
    if hardware.per == "soc":
        raise UsageError(f"{hardware.id} has one memory with its host: there is nothing to offload to")
    if hardware.host is None:
        hints = ("give `host: {link: ..., per_direction: ...}` in a device file of your own",)
        raise UsageError(f"the link between {hardware.id} and its host is not on file", hints=hints)
    return float(parse_quantity(hardware.host.per_direction, "B/s"))
