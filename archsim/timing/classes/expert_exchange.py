"""The all-to-all of expert parallelism: tokens to the ranks of their experts (`moe_dispatch`), results back
(`moe_combine`), as DeepEP's kernels do (https://github.com/deepseek-ai/DeepEP) and those that engines build on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from archsim.base.number import Num, ceil_div, log2, maximum, minimum, where
from archsim.graph.collectives import GROUPED, copies_to_ranks
from archsim.graph.kernels import Traffic
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.collective import Hops, by_group
from archsim.timing.classes.model import HOST, Constant, KernelModel, launched_from_host
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates
from archsim.timing.roofline import Work

Rule = Callable[[Num, float, bool], Num]
"""Of bytes over a level, its rate, and whether it is a network."""

PICKED = ("_ll", "generation")
"""Parts of kernel names that send a token once for every expert (low latency), not once for every rank."""

SENT: Mapping[str, float] = {"fp8": 1 + 4 / 128, "nvfp4": 0.5 + 1 / 16}
"""Bytes of one element on the way out in narrow formats."""

EIGHT_BITS = "deepep"
"""Beginning of names of kernels that send 8 bits where a table states no format: DeepEP's own, with scales for 128."""

USUAL_SMS = 20
"""Multiprocessors that kernels take where an engine does not say, as DeepEP's buffers do."""

MANY_EXPERTS = 256
"""Experts of all ranks where a call does not say."""

IMPLIED: Mapping[str, float] = {"picked": 0.0, "sms": USUAL_SMS}
"""Extents that follow from the implementation, with what is wanted where it leaves a choice."""


class MoeDispatch(KernelModel):
    """t = t0 + steps·step + flight·token + |wire, tokens of one multiprocessor·token|_p: m tokens of every rank to the
    ranks that hold their experts.

    A token crosses a link once for every rank that has experts for it, or once for every expert. Wire: bytes over a
    share `link` of NVLink's rate, `network` of the network's. A multiprocessor spends on each of its tokens `token_ns`,
    and copies `unit_gbps`, also to and from its `own` buffers; it keeps `flight` tokens on their way at once, so that a
    single one takes that many times its share of a busy one. Some kernels are given a number of multiprocessors
    (`sms`); those that send a token once for every expert start one for each expert, as far as the device has them
    (DeepEP, csrc/kernels/internode_ll.cu). A step is one more rank to wait for, `expert_us` one more expert of the own
    rank. host_us: of the loop that timed a table's rows.
    """

    kernel_class: ClassVar[str] = "moe_dispatch"
    dims: ClassVar[tuple[str, ...]] = ("m", "topk", "hidden", "n_gpus")
    optional: ClassVar[Mapping[str, float]] = {"sms": 0, "picked": 0, "stride": 1, "experts": MANY_EXPERTS, "warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": Constant(20.0, 1.0, 400.0),
        "step_us": Constant(0.3, 0.005, 20.0),
        "expert_us": Constant(0.1, 0.005, 5.0),
        "token_ns": Constant(50.0, 1.0, 5000.0),
        "flight": Constant(2.0, 0.1, 40.0),
        "link": Constant(0.60, 0.05, 1.0),
        "network": Constant(0.70, 0.05, 1.0),
        "unit_gbps": Constant(16.0, 1.0, 100.0),
        "own": Constant(1.0, 0.1, 10.0),
        "overlap": Constant(3.0, 1.0, 8.0),
        "host_us": HOST,
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 1, 18), Axis("span", 3, 1, 4)),
        (Axis("m", 0, 3, 6), Axis("topk", 0, 1, 4)),
        (Axis("m", 0, 3, 7), Axis("sms", 0, 1, 6)),
    )
    families: ClassVar[tuple[str, ...]] = ("hidden", "topk", "n_gpus")
    few: ClassVar[int] = 30
    growths: ClassVar[tuple[Axis, ...]] = (Axis("m", 0, 1, 19),)
    general: ClassVar[str] = "nccl_alltoall"
    supports: ClassVar[tuple[str, ...]] = ("m", *IMPLIED)
    implied: ClassVar[Mapping[str, float]] = IMPLIED

    def smallest(self, call: KernelCall) -> KernelCall:
        """A graph's own bytes only bound the call."""
        found = super().smallest(call)
        return found._replace(dims={name: value for name, value in found.dims.items() if name != "least_bytes"})

    def element_bytes(self, call: KernelCall) -> float:
        """Bytes of one element on the way."""
        return SENT.get(call.dtype, 2)

    def prepare(self, call: KernelCall) -> KernelCall:
        """Multiprocessors, the manner of sending and the format, as the kernel's name states them."""
        if not call.kernel:
            return call
        found, zero = re.search(r" sms(\d+)", call.kernel), call.dims["m"] * 0
        picked = any(part in call.kernel for part in PICKED)
        stated = {"sms": zero + float(found.group(1) if found else 0), "picked": zero + float(picked), "warm": zero + 1}
        return call._replace(dtype=self.sent_dtype(call), dims={**stated, **call.dims})

    def sent_dtype(self, call: KernelCall) -> str:
        """The format that is sent; tables leave it open for kernels that send 8 bits."""
        return "fp8" if call.dtype in ("", "bf16") and call.kernel.startswith(EIGHT_BITS) else call.dtype

    def as_general(self, call: KernelCall) -> KernelCall:
        """A row for every expert of a token in an all-to-all of the collective library."""
        rows = call.dims["m"] * call.dims["topk"] * call.dims["hidden"] * self.element_bytes(call)
        kept = {name: call.dims[name] for name in ("n_gpus", "stride", "hbm_bytes") if name in call.dims}
        return KernelCall(self.general, dims={**kept, "bytes": rows})

    def variant(self, kernel: str) -> str:
        """The implementation; multiprocessors are an extent."""
        return kernel.partition(" sms")[0]

    def minimum_work(self, call: KernelCall, machine: DeviceRates) -> Work:
        """Every token once to each rank that needs it, at the links' rates."""
        sent = self._by_level(call, machine, lambda size, rate, network: size)
        slowest = self._by_level(call, machine, lambda size, rate, network: size * GROUPED / rate)
        if "least_bytes" in call.dims:  # of a graph, which does not say in which format tokens travel
            least = call.dims["least_bytes"] / self.element_bytes(call)
            sent, slowest = sent * GROUPED * least, slowest * least
        return Work(traffic=Traffic(act=call.dims.get("hbm_bytes", 0)), comm_bytes=sent, comm_s=slowest)

    def _by_level(self, call: KernelCall, machine: DeviceRates, rule: Rule) -> Num:
        """The largest of what a rule says of each level: of bytes of one rank over it, its rate, and what it is."""
        token = call.dims["m"] * call.dims["hidden"] * self.element_bytes(call)

        def slowest(size: Num, hops: Hops) -> Num:
            found: Num = size * 0.0
            for hop in hops:
                others = copies(call, hop.ranks)
                found = maximum(found, rule(size * others, hop.rate, hop.medium == "network"))
            return found

        return by_group(call._replace(dims={**call.dims, "bytes": token}), machine, slowest)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Links against multiprocessors, over the floor, the wait for every rank and the way of one token."""

        def wire(size: Num, rate: float, network: bool) -> Num:
            return size / (rate * constants["network" if network else "link"])

        p, ranks, picked = constants["overlap"], call.dims["n_gpus"], call.dims.get("picked", 0)
        handled = call.dims["hidden"] * self.element_bytes(call) * (copies(call, ranks) + constants["own"])
        copied = handled / (constants["unit_gbps"] * 1e9)
        each = call.dims["m"] / multiprocessors(call, machine) * (copied + constants["token_ns"] * 1e-9)
        busy = (self._by_level(call, machine, wire) ** p + each**p) ** (1 / p)
        waits = ranks * constants["step_us"] + picked * experts(call) / ranks * constants["expert_us"]
        device = (constants["floor_us"] + waits) * 1e-6 + constants["flight"] * copied + busy
        return launched_from_host(call, device, constants["host_us"])

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of tokens, ranks, experts of a token and multiprocessors."""
        ranks, topk = log2(call.dims["n_gpus"]), log2(call.dims["topk"])
        sms = log2(multiprocessors(call, machine))
        return {"m": log2(maximum(call.dims["m"], 1)), "span": ranks, "topk": topk, "sms": sms}


class MoeCombine(MoeDispatch):
    """The results of a token's experts back to its rank, in 16 bits unless stated."""

    kernel_class: ClassVar[str] = "moe_combine"

    def element_bytes(self, call: KernelCall) -> float:
        """Bytes of one element on the way: 16 bits, unless results are quantised too."""
        return SENT["fp8"] if call.dtype == "fp8" else 2

    def sent_dtype(self, call: KernelCall) -> str:
        """As stated, else 16 bits."""
        return call.dtype or "bf16"


def copies(call: KernelCall, ranks: Num) -> Num:
    """How often a token leaves its port among `ranks`: for each other port with one of its experts, or each expert."""
    topk = call.dims["topk"]
    distinct = copies_to_ranks(ranks, topk)
    picked = topk * (ranks - 1) / ranks
    return distinct + (picked - distinct) * call.dims.get("picked", 0)


def experts(call: KernelCall) -> Num:
    """Experts of all ranks."""
    return call.dims.get("experts", MANY_EXPERTS)


def multiprocessors(call: KernelCall, machine: DeviceRates) -> Num:
    """What a kernel was given, or starts: as many as deal the experts out evenly where it sends once for each."""
    units = max(machine.units, 1)
    started = minimum(experts(call) / ceil_div(experts(call), units), units)
    unstated = where(call.dims.get("picked", 0) > 0, started, USUAL_SMS)
    given = call.dims.get("sms", 0)
    return where(given > 0, given, unstated)
