"""What is predicted of models on the present processor before anything of them is timed: cases, and the blind plan."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import exp
from pathlib import Path
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.output_file import write_text
from archsim.base.version import VERSION
from archsim.counts.count import count, step_for
from archsim.counts.formats import choose_formats
from archsim.counts.graph_counts import weight_bytes
from archsim.counts.step_graphs import StepGraphs
from archsim.graph.graph import ops
from archsim.graph.step import Seqs, Step
from archsim.measure.cpu_layers import ENGINES, FORMATS
from archsim.measure.live_bytes import live_peak_bytes
from archsim.measure.trained_layers import STACK
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store, default_store, folders
from archsim.timing.step_pricer import StepPricer, engine_overheads, step_bytes
from archsim.timing.step_time import StepTime
from archsim.training.layout import Layout
from archsim.training.one_device import usual_setup
from archsim.training.pricer import Choice, TrainingPricer

TRAINED = (128, 512)
"""Tokens of the sequence of a training step."""
RECOMPUTED = {"eager": "none", "recomputed": "full"}
"""What a form of a training step runs once more in the backward."""
PROMPTS = (128, 512, 16, 2048)
DECODES = ((1, 128), (8, 512), (1, 1024), (32, 256), (1, 4096))
"""Batch and cached tokens."""
LONGEST_S = 4.0
"""Cases that are predicted to take longer are left out: seven rounds of one would take half a minute."""


class Case(NamedTuple):
    """One pass of a model: batch sequences of `new` tokens after `past` ones. phase: `prefill`, `decode`, or `train`,
    a step with its backward and update. form: `eager` or `compiled`; of a training step `eager` or `recomputed`, with
    every layer once more in the backward.
    """

    model: str
    dtype: str
    form: str
    phase: str
    batch: int
    new: int
    past: int

    @property
    def id(self) -> str:
        """The case in one word."""
        return "/".join(map(str, self))


def cases(model: Model, dtype: str) -> list[Case]:
    """The cases of a model, the most telling first; lengths beyond its context are left out."""
    longest, forms = model.max_context or 1 << 20, tuple(ENGINES)
    found = []
    for i in range(max(len(PROMPTS), len(DECODES))):
        for form in forms:
            if i < len(PROMPTS) and PROMPTS[i] <= longest:
                found.append(Case(model.name, dtype, form, "prefill", 1, PROMPTS[i], 0))
            if i < len(DECODES) and model.architecture != "encoder" and DECODES[i][1] < longest:
                found.append(Case(model.name, dtype, form, "decode", DECODES[i][0], 1, DECODES[i][1]))
        if i < len(TRAINED) and dtype == "fp32" and is_trained(model):
            found += [Case(model.name, dtype, form, "train", 1, TRAINED[i], 0) for form in RECOMPUTED]
    return found


def is_trained(model: Model) -> bool:
    """Whether a step of training is timed: of what has a loss, and no recurrence, which autograd takes token by token
    through a thousand operators.
    """
    source = 2 if model.encoder is not None else None
    graph = lower(model, Step.prefill(1, 2, source))
    return model.architecture != "encoder" and not any(op.kind == "scan" for op, _ in ops(graph))


class Predictor:
    """Predicts cases of one model on one processor. It is given no measurement."""

    def __init__(self, model: Model, hardware: Hardware, dtype: str, store: Store | None = None) -> None:
        self.model, self.hardware, self.dtype = model, hardware, dtype
        self.store = store or default_store()

    def step_of(self, case: Case) -> Step:
        """The pass as a step: every pair below the diagonal, logits of the last token."""
        source = (Seqs(case.batch, case.past or case.new, 0),) if self.model.encoder is not None else ()
        return Step.of(case.batch, case.new, case.past, absorbed=case.past > 0, source=source)

    def pricer(self, form: str) -> StepPricer:
        """The pricer of a form."""
        engine = ENGINES[form]
        formats = choose_formats(self.model, FORMATS[self.dtype], engine=engine)
        overheads = engine_overheads(engine, self.store)
        return StepPricer.of(self.model, self.hardware, formats, overheads, Plan(), store=self.store)

    def price(self, case: Case) -> StepTime:
        """The time of a case."""
        return self.pricer(case.form).price(self.step_of(case))

    def row(self, case: Case) -> JsonObject:
        """A case with its prediction: seconds, the ends of the 80 % interval, the naive roofline, bytes at the peak."""
        return self._training_row(case) if case.phase == "train" else self._pass_row(case)

    def _training_row(self, case: Case) -> JsonObject:
        """A step of training, as `archsim train` answers it."""
        pricer = TrainingPricer.of(self.model, self.hardware, usual_setup(STACK))
        layout = Layout(seq_len=case.new, micro_batch=case.batch, global_batch=case.batch)
        priced = pricer.price(Choice(layout, RECOMPUTED[case.form]))
        seconds, most, width = priced.step.expected_s, priced.memory.most, exp(pricer.factors.interval)
        moved = most.states.weights + 2 * most.states.gradients + 2 * most.states.optimizer
        peak = self.hardware.peak_flops(self.dtype).flops
        by_class: dict[str, float] = {}
        for kernels in priced.micro.kernels.values():
            for kernel in kernels:
                by_class[kernel.kernel_class] = by_class.get(kernel.kernel_class, 0.0) + kernel.seconds
        return {
            "id": case.id, **case._asdict(),
            "predicted_s": seconds, "low_s": seconds / width, "high_s": seconds * width,
            "roofline_s": max(float(priced.graph.flops.executed) / peak, moved / self.hardware.bandwidth),
            "evidence": priced.micro.evidence, "weight_bytes_predicted": most.states.weights,
            "cache_bytes_predicted": most.states.optimizer,
            "activation_bytes": most.allocated - most.states.weights - most.states.optimizer,
            "read_bytes": moved, "by_class_s": by_class,
        }  # fmt: skip

    def _pass_row(self, case: Case) -> JsonObject:
        time, step = self.price(case), self.step_of(case)
        formats = choose_formats(self.model, FORMATS[self.dtype], engine=ENGINES[case.form])
        graph = StepGraphs(self.model, formats).rank(step, Plan())
        parts = {part.kernel_class: float(part.time.expected) for part in time.by_class}
        return {
            "id": case.id, **case._asdict(), "predicted_s": float(time.expected_s), "low_s": float(time.low_s),
            "high_s": float(time.high_s), "roofline_s": self._roofline_s(time), "evidence": time.evidence,
            "activation_bytes": live_peak_bytes(graph, case.batch, case.form == "compiled"),
            "read_bytes": float(step_bytes(graph)),
            **self._held(case),
            "by_class_s": parts,
        }  # fmt: skip

    def _held(self, case: Case) -> JsonObject:
        """Bytes of the parameters and of the caches after the pass."""
        formats = choose_formats(self.model, FORMATS[self.dtype], engine=ENGINES[case.form])
        length = case.past + case.new
        counted = count(self.model, batch=case.batch, input_len=length)
        weights = weight_bytes(formats.apply(lower(self.model, step_for(self.model, 1, 1))))
        return {"weight_bytes_predicted": weights, "cache_bytes_predicted": counted.kv_bytes * formats.kv.bytes / 2}

    def _roofline_s(self, time: StepTime) -> float:
        """max(FLOP / peak, bytes / bandwidth) of the whole step."""
        peak = self.hardware.peak_flops(self.dtype).flops
        return max(float(time.flops) / peak, float(time.bytes) / self.hardware.bandwidth)


def plan_document(rows: Sequence[JsonObject], hardware: Hardware) -> JsonObject:
    """The blind plan: predictions, and what they were made from."""
    return {
        "schema": "archsim.cpu-plan/1", "archsim": VERSION, "commit": _commit(), "device": hardware.id,
        "device_sha256": _digest(json.dumps(hardware.to_dict(), sort_keys=True, default=str)),
        "constants_sha256": _digest("".join(_constants(hardware.id))), "rows": list(rows),
    }  # fmt: skip


def write_plan(path: Path, document: JsonObject, *, force: bool = False) -> str:
    """Write the plan; its SHA-256, which whoever reads the results compares."""
    text = json.dumps(document, indent=1) + "\n"
    write_text(path, text, force=force)
    return _digest(text)


def plan_of(path: Path) -> tuple[JsonObject, str]:
    """A plan that was written before, and its SHA-256."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text), _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _constants(device: str) -> Iterator[str]:
    """The calibration documents of a device."""
    for folder in folders():
        for path in sorted((folder / device).glob("*/calibration.yaml")):
            yield path.read_text(encoding="utf-8")


def _commit() -> str | None:
    with suppress(OSError, subprocess.SubprocessError):
        here = Path(__file__).parent
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return None
