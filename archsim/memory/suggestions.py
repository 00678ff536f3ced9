"""Changes that would make it fit, or fit more, each really computed, and the limits (the inverse questions)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from archsim.base.errors import ArchsimError
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.lowered_steps import shared_steps
from archsim.graph.graph import Block, kept_with_graph
from archsim.memory.check_fit import Change, Fit, FitRequest, Inverse, check_change
from archsim.memory.tensors import HeldWeights, TensorCopies
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import expert_counts

MORE = 1.05
"""Tokens relative to the present from which a change is worth showing."""

LESS = 0.95
"""Size relative to the present below which a format counts as narrower."""

LOW_STEP, LOW_SEQS, HIGH_SHARE = 2048, 256, 0.95
"""Settings that leave more for the cache: tokens of a step, sequences, memory fraction."""

ROUND = 1024
"""Contexts are suggested in whole multiples of this."""


class Trials:
    """Answers to changed requests about a model on a device, each found once."""

    def __init__(self, model: Model, hardware: Hardware) -> None:
        self.model, self.hardware = model, hardware
        self._known: dict[FitRequest, Fit | None] = {}

    def answer(self, request: FitRequest) -> Fit | None:
        """The answer to a request; None where there is none, or where the weights alone are too large."""
        if request not in self._known:
            try:
                self._known[request] = check_change(self.model, self.hardware, request)
            except ArchsimError:
                self._known[request] = None
        return self._known[request]

    def fits(self, request: FitRequest) -> bool:
        """Whether it fits."""
        found = self.answer(request)
        return found is not None and found.fits


def suggestions(request: FitRequest, answer: Fit, trials: Trials) -> Iterator[Change]:
    """Changes under which it fits where it does not, or that hold 5 % more tokens where it does; what costs
    nothing first, then precision, then context, then devices."""
    for change, tried in candidate_changes(request, answer, trials):
        found = trials.answer(tried)
        if found is None or (not found.fits if not answer.fits else not _more(found, answer)):
            continue
        yield Change(
            change=change, verdict=found.verdict, devices=found.plan.devices, kv_tokens=found.kv_tokens,
            longest=found.longest,
        )  # fmt: skip


def _more(found: Fit, answer: Fit) -> bool:
    if found.kv_tokens is None or answer.kv_tokens is None:
        return (found.concurrency or 0) > MORE * (answer.concurrency or 0)
    return found.kv_tokens > MORE * answer.kv_tokens


def candidate_changes(request: FitRequest, answer: Fit, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    yield from _engine_settings(request, answer, trials)
    if answer.kv_tokens is not None and answer.formats.kv.bits > 9:
        name = answer.engine.rules.formats.kv_cache
        yield f"--kv-cache-dtype {name}", replace(request, kv_cache_dtype=name)
    if not answer.fits and answer.longest and answer.longest < answer.length:
        shorter = answer.longest // ROUND * ROUND or answer.longest
        yield (
            f"--max-model-len {shorter}",
            replace(request, settings=replace(request.settings, max_model_len=shorter)),
        )
    for name in formats_below(answer):
        yield f"--weights {name}", replace(request, weights=name)
        yield from _both(request, answer, name, trials)
    for count in (2, 4, 8):
        if count > answer.plan.devices and count <= max(answer.hardware.max_domain, 1):
            bare = replace(request, devices=count, tp=None, pp=None, ep=None, dp=None)
            yield from _more_devices(bare, count, answer, trials)


def _more_devices(request: FitRequest, count: int, answer: Fit, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    """So many devices; where they do not hold it, the widest weights in which they do."""
    yield f"--devices {count}", request
    if answer.fits or trials.fits(request):
        return
    for name in formats_below(answer):
        narrower = replace(request, weights=name)
        if trials.fits(narrower):
            yield f"--devices {count} --weights {name}", narrower
            return


def _both(request: FitRequest, answer: Fit, weights: str, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    """A narrower format together with a shorter context, where neither is enough alone."""
    narrow = None if answer.fits else trials.answer(replace(request, weights=weights))
    if narrow is None or narrow.fits or not narrow.longest or narrow.longest < ROUND:
        return
    shorter = narrow.longest // ROUND * ROUND
    settings = replace(request.settings, max_model_len=shorter)
    change = f"--weights {weights} --max-model-len {shorter}"
    yield change, replace(request, weights=weights, settings=settings)


def _engine_settings(request: FitRequest, answer: Fit, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    """Settings of the engine that cost no precision."""
    s, b, flags = request.settings, answer.budget, answer.engine.rules.flags
    if "eager" in flags and b.graphs and b.graphs_inside:
        yield flags["eager"], replace(request, settings=replace(s, enforce_eager=True))
    if "tokens" in flags and answer.batched_tokens > LOW_STEP and b.meaning != "static":
        yield (f"{flags['tokens']} {LOW_STEP}", replace(request, settings=replace(s, max_num_batched_tokens=LOW_STEP)))
    if "seqs" in flags and answer.engine.rules.memory.activations.logits_rows == "seqs" and answer.seqs > LOW_SEQS:
        yield f"{flags['seqs']} {LOW_SEQS}", replace(request, settings=replace(s, max_num_seqs=LOW_SEQS))
    if "share" in flags and b.meaning == "total" and b.share < HIGH_SHARE:
        yield (
            f"{flags['share']} {HIGH_SHARE}",
            replace(request, settings=replace(s, gpu_memory_utilization=HIGH_SHARE)),
        )
    if "experts" in flags and not answer.fits:
        yield from _experts_kept(request, answer, trials)
    most = answer.engine.rules.memory.graphs
    if s.n_gpu_layers is None and answer.engine.rules.parallelism.splits == "layers" and most is None:
        yield from _offloads(request, answer, trials)


def _offloads(request: FitRequest, answer: Fit, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    """Experts of the fewest layers in host memory; or fewer layers on the device: the most that still fit."""
    if answer.fits:
        return
    yield from _experts_out(request, answer, trials)
    total = answer.model.n_layers
    spare = answer.budget.limit - answer.budget.non_torch - answer.budget.activations
    each = (answer.budget.weights + answer.need) / total
    for layers in range(min(int(spare / each), total), -1, -1):
        tried = replace(request, settings=replace(request.settings, n_gpu_layers=layers))
        if trials.fits(tried):
            yield f"-ngl {layers}", tried
            return


def _experts_out(request: FitRequest, answer: Fit, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    """`--n-cpu-moe` with the fewest layers that make it fit, found by bisection."""
    if not expert_counts(answer.model) or request.settings.cpu_moe:
        return

    def tried(count: int) -> FitRequest:
        return replace(request, settings=replace(request.settings, n_cpu_moe=count))

    low, high = request.settings.n_cpu_moe, answer.model.n_layers
    if not trials.fits(tried(high)):
        return
    while high - low > 1:
        middle = (low + high) // 2
        enough = trials.fits(tried(middle))
        low, high = (low, middle) if enough else (middle, high)
    yield f"--n-cpu-moe {high}", tried(high)


def _experts_kept(request: FitRequest, answer: Fit, trials: Trials) -> Iterator[tuple[str, FitRequest]]:
    """The most routed experts of each layer with which it fits, the others in host memory; found by bisection."""
    counts = expert_counts(answer.model)
    kept = request.settings.num_gpu_experts

    def tried(count: int) -> FitRequest:
        return replace(request, settings=replace(request.settings, num_gpu_experts=count))

    high = max(counts, default=0) if kept is None else kept
    if not counts or not trials.fits(tried(0)):
        return
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if trials.fits(tried(middle)) else (low, middle)
    yield f"{answer.engine.rules.flags['experts']} {low}", tried(low)


def formats_below(answer: Fit) -> Iterator[str]:
    """Weight formats in which the model is smaller than now, the widest first."""
    present = _weight_bytes(answer.model, answer.formats)
    for name in answer.engine.rules.formats.weights:
        try:
            narrower = choose_formats(answer.model, name)
        except ArchsimError:
            continue
        if _weight_bytes(answer.model, narrower) < LESS * present:
            yield name


def _weight_bytes(model: Model, formats: Formats) -> float:
    return float(_weights(shared_steps(model).get(step_for(model, 1, 1))).bytes_in(formats))


@kept_with_graph
def _weights(graph: Block) -> HeldWeights:
    """All weights of a graph before formats, whose bytes are asked for in one format after another."""
    return HeldWeights(each=tuple(TensorCopies(item.tensor, item.copies) for item in c.inventory(graph)))


# ---------------------------------------------------------------------- limits, the inverse questions
def inverse(request: FitRequest, answer: Fit, trials: Trials) -> Inverse:
    """Fewest devices, widest format that fits, largest batch."""
    free = replace(request, devices="auto", tp=None, pp=None, ep=None, dp=None)
    fewest = answer if answer.fits and answer.plan.devices == 1 else trials.answer(free)
    widest = answer.formats.name if answer.fits else None
    if widest is None:
        names = formats_below(answer)
        widest = next((n for n in names if trials.fits(replace(request, weights=n))), None)
    batch = int(answer.concurrency) if answer.concurrency is not None else None
    return Inverse(devices=fewest.plan.devices if fewest else None, weights=widest, batch=batch)
