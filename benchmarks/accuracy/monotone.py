"""Does any answer fall where it must not? Random cells of catalog x devices x engines, one thing varied at a time.

python benchmarks/accuracy/monotone.py [--cells 300] [--seed 1] [--tolerance 0.001]

Times of a step must not fall as prompts, batches or contexts grow, nor rise with bandwidth or peak; memory must not
fall with length or batch, on the device that has most of each: an answer shows one device whole, that of the stage
that holds fewest tokens, so that its lines add up, and as prompts grow that may become a stage with more weights and
fewer caches, whose cache is the smaller while no stage's falls. Throughput in the steady state must not fall as more
requests are in flight. Prints each kind's checks, violations beyond the tolerance and the worst of them, and exits with
1 where there is any.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from archsim.base.errors import ArchsimError
from archsim.base.units import parse_quantity
from archsim.counts.formats import choose_formats
from archsim.counts.workload import Workload
from archsim.engines.names import choose_engine
from archsim.graph.step import Step
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors
from archsim.serving.steady_state import steady_state_of
from archsim.spec import catalog
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware, load_model
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, check_degrees
from archsim.timing.step_pricer import StepPricer, engine_overheads

ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "generic")
WEIGHTS = (None, None, "fp8", "int4")
FASTER = (1.0, 1.05, 1.2, 1.5, 2.0, 3.0, 4.0)
TOKENS = np.unique(np.round(2 ** np.arange(1, 16.01, 0.125)))
BATCHES = np.unique(np.round(2 ** np.arange(0, 9.01, 0.125)))
CONTEXTS = np.unique(np.round(2 ** np.arange(4, 17.01, 0.25)))
REQUESTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
DEGREES = ((1, 1), (1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (1, 4))


@dataclass
class Tally:
    """Checks of one kind: neighbours compared, those that are the wrong way, and the worst with its cell."""

    checks: int = 0
    wrong: int = 0
    cells: set[str] = field(default_factory=set)
    worst: float = 0.0
    where: str = ""

    def add(self, values: Any, cell: str, at: Sequence[Any], tolerance: float) -> None:
        """Count where a sequence along its last axis is below the largest before it."""
        array = np.atleast_2d(np.asarray(values, dtype=float))
        top = np.maximum.accumulate(array, axis=-1)[..., :-1]
        fall = (top - array[..., 1:]) / np.where(top > 0, top, 1.0)
        self.checks += fall.size
        self.wrong += int((fall > tolerance).sum())
        if (fall > tolerance).any():
            self.cells.add(cell)
        if fall.size and fall.max() > self.worst:
            place = np.unravel_index(fall.argmax(), fall.shape)
            self.worst, self.where = float(fall.max()), f"{cell} at {at[place[-1] + 1]}"


def scaled_device(hardware: Hardware, bandwidth: float = 1.0, peak: float = 1.0) -> Hardware:
    """The device with its memory's bandwidth and all its peaks multiplied; all else, its name too, as it is."""
    memory = hardware.memory.model_copy(
        update={"bandwidth": f"{float(parse_quantity(hardware.memory.bandwidth, 'B/s')) * bandwidth:.12g} B/s"}
    )
    peaks = {}
    for name, entry in hardware.compute.peak.items():
        changed = {
            unit: f"{float(parse_quantity(value, 'FLOP/s')) * peak:.12g} FLOP/s"
            for unit, value in entry.model_dump(exclude_none=True).items()
            if unit in ("matrix", "vector", "fp16_accumulate")
        }
        peaks[name] = entry.model_copy(update=changed)
    compute = hardware.compute.model_copy(update={"peak": peaks})
    copy = hardware.model_copy(update={"memory": memory, "compute": compute})
    for derived in set(copy.__dict__) - set(Hardware.all_fields):
        del copy.__dict__[derived]
    return copy


@dataclass(frozen=True)
class Cell:
    """A model on a device by one engine on one plan."""

    model: Model
    hardware: Hardware
    engine: str
    weights: str | None
    plan: Plan

    def __str__(self) -> str:
        plan = f"tp{self.plan.tp} pp{self.plan.pp}"
        return f"{self.model.name} {self.weights or 'as stored'} {self.hardware.id} {self.engine} {plan}"

    def pricer(self, hardware: Hardware) -> StepPricer:
        """The pricer on the device or on one with other rates."""
        formats = choose_formats(self.model, self.weights, None, engine=self.engine)
        return StepPricer.of(self.model, hardware, formats, engine_overheads(self.engine), self.plan)

    def check(self, tallies: dict[str, Tally], tolerance: float) -> None:
        """All kinds of checks of the cell."""

        def add(kind: str, values: Any, at: Sequence[Any]) -> None:
            tallies.setdefault(kind, Tally()).add(values, str(self), at, tolerance)

        for kind, values, at in self.findings():
            add(kind, values, at)

    def findings(self) -> Iterator[tuple[str, Any, Sequence[Any]]]:
        """Every sequence that must not fall: its kind, values and where each stands."""
        pricer, encoder = self.pricer(self.hardware), self.model.architecture == "encoder"
        yield "prefill by length", self.prefill(pricer, 1, TOKENS), TOKENS
        yield "prefill by batch", self.prefill(pricer, BATCHES, 512), BATCHES
        if not encoder:
            yield "decode by batch", self.decode(pricer, BATCHES, 2048), BATCHES
            yield "decode by context", self.decode(pricer, 8, CONTEXTS), CONTEXTS
            rates = [steady_state_of(pricer, n, 1024, 256).tokens_per_s for n in REQUESTS]
            yield "throughput by requests", rates, REQUESTS
        for name in ("bandwidth", "peak"):
            devices = [self.pricer(scaled_device(self.hardware, **{name: by})) for by in FASTER]
            some = TOKENS[::8]
            yield f"prefill by {name}", 1 / np.stack([self.prefill(p, 1, some) for p in devices], -1), FASTER
            if not encoder:
                steps = [self.decode(p, BATCHES[::4], 2048) for p in devices]
                yield f"decode by {name}", 1 / np.stack(steps, -1), FASTER
        yield from self.memory()

    def prefill(self, pricer: StepPricer, batch: Any, tokens: Any) -> Any:
        """Expected seconds of a prefill."""
        step = Step.prefill(batch, tokens, tokens if self.model.encoder is not None else None)
        return np.asarray(pricer.prefill(step).expected_s)

    def decode(self, pricer: StepPricer, batch: Any, context: Any) -> Any:
        """Expected seconds of a decode step; of an encoder-decoder after a source of 512 tokens."""
        source = 512 if self.model.encoder is not None else None
        return np.asarray(pricer.price(Step.decode(batch, context, source=source)).expected_s)

    def memory(self) -> Iterator[tuple[str, Any, Sequence[Any]]]:
        """Bytes of the device that has most of them: in all, and of activations and caches."""
        formats = choose_formats(self.model, self.weights, None, engine=self.engine)
        tensors = EngineTensors(self.model, self.hardware, formats, choose_engine(self.engine))
        for kind, load, at in (
            ("length", Workload(batch=1, input_len=TOKENS, output_len=1), TOKENS),
            ("batch", Workload(batch=BATCHES, input_len=1024, output_len=1), BATCHES),
        ):
            memory, full = EngineMemoryModel(tensors, load), np.zeros(len(at))
            stages = [memory.of_stage(self.plan, stage, load.batch) for stage in tensors.stages(self.plan)]
            for name, values in (
                ("memory", [stage.needed for stage in stages]),
                ("activations", [stage.activations for stage in stages]),
                ("KV cache", [stage.kv_cache for stage in stages]),
            ):
                yield f"{name} by {kind}", np.max([value + full for value in values], axis=0), at


def cells(count: int, seed: int) -> Iterator[Cell]:
    """Random cells that can be priced."""
    rng = random.Random(seed)
    models = sorted(catalog.files("models"))
    devices = sorted(name for name, path in catalog.files("hw").items() if path.parent.name == "devices")
    loaded: dict[str, Any] = {}
    found = tries = 0
    while found < count and tries < 20 * count:
        tries += 1
        name, device = rng.choice(models), rng.choice(devices)
        engine, weights, (tp, pp) = rng.choice(ENGINES), rng.choice(WEIGHTS), rng.choice(DEGREES)
        try:
            model = loaded.setdefault(name, None) or load_model(name)
            hardware = loaded.setdefault(device, None) or load_hardware(device)
            loaded[name], loaded[device] = model, hardware
            plan = Plan(tp=tp, pp=pp, engine=choose_engine(engine).rules.name)
            check_degrees(model, plan)
            cell = Cell(model, hardware, engine, weights, plan)
            cell.pricer(hardware).price(Step.prefill(1, 128, 128 if model.encoder is not None else None))
        except ArchsimError:
            continue
        found += 1
        yield cell


def main() -> int:
    """Scan and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=0.001)
    parser.add_argument("--verbose", action="store_true", help="list the cells with violations")
    args = parser.parse_args()
    tallies: dict[str, Tally] = {}
    for cell in cells(args.cells, args.seed):
        try:
            cell.check(tallies, args.tolerance)
        except ArchsimError as error:
            print(f"{cell}: {error.message}", file=sys.stderr)
    for kind, tally in tallies.items():
        print(
            f"{kind:24} {tally.checks:8,} checks {tally.wrong:6,} violations in {len(tally.cells):4} cells"
            + (f"; worst {tally.worst:.2%}: {tally.where}" if tally.wrong else "")
        )
        if args.verbose:
            print(*(f"    {cell}" for cell in sorted(tally.cells)), sep="\n")
    return int(any(tally.wrong for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
