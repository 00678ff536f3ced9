"""`archsim explain MODEL QUANTITY`: the formula behind a figure, from the same counting code called with letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName, UsageError
from archsim.base.number import Num, floor_div, minimum, opaque
from archsim.base.poly import Poly
from archsim.blocks.layer import walk_layers
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for, windows_note
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.training_graph import training_graph, training_step_of
from archsim.graph.graph import Block, ops
from archsim.graph.step import CAUSAL, Mask, Seqs, Step
from archsim.graph.tensor import Tensor, Use, nbytes, numel
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.symbolic import meanings, symbolic


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One quantity: its polynomial, the same with numbers in it, and its value. part: of the quantity, if not all."""

    part: str
    poly: Poly
    letters: Mapping[str, int]
    unit: str

    @property
    def symbols(self) -> str:
        """The formula in letters."""
        return tidy(str(self.poly))

    @property
    def numbers(self) -> str:
        """The formula with the letters' numbers in it."""
        return tidy(self.poly.text(self.letters))

    @property
    def value(self) -> Num:
        """What it comes to."""
        return self.poly(**self.letters)

    def to_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "part": self.part, "formula": self.symbols, "numbers": self.numbers, "value": self.value,
            "unit": self.unit,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A quantity of a model: the whole and its parts, the letters in them, conventions and sources."""

    model: str
    quantity: str
    title: str
    whole: Formula
    parts: tuple[Formula, ...]
    notes: tuple[str, ...]
    sources: tuple[str, ...]
    meanings: Mapping[str, str]

    def meaning(self, letter: str) -> str:
        """What a letter, numbered or not, stands for."""
        return self.meanings.get(letter) or self.meanings.get(letter.rstrip("0123456789"), letter)

    @property
    def letters(self) -> dict[str, int]:
        """The letters that occur, with their numbers."""
        used = {letter for formula in (self.whole, *self.parts) for letter in formula.poly.letters}
        return {letter: n for letter, n in self.whole.letters.items() if letter in used}

    def to_dict(self) -> dict[str, object]:
        """The `archsim.explain/1` object."""
        return {
            "schema": "archsim.explain/1", "model": {"name": self.model}, "quantity": self.quantity,
            **{k: v for k, v in self.whole.to_dict().items() if k != "part"}, "letters": self.letters,
            "parts": [part.to_dict() for part in self.parts], "notes": list(self.notes),
            "sources": list(self.sources),
        }  # fmt: skip


def tidy(text: str) -> str:
    """Signs and function names as in print."""
    return text.replace(" + -", " - ").replace("minimum(", "min(").replace("maximum(", "max(")


# ---------------------------------------------------------------------- steps and sizes with letters
@opaque
def in_chunk(length: Num, chunk: Num) -> Num:
    """Keys of its own chunk that the last of `length` tokens sees."""
    return (length - 1) % chunk + 1


class OneToken(Step):
    """A decode step whose context is a letter: its pairs are written down rather than subtracted."""

    __slots__ = ()

    def pairs(self, mask: Mask = CAUSAL) -> Num:
        """Keys that the new token sees."""
        length = self.seqs[0].past + 1
        if not mask.causal or mask.global_tokens or mask.vertical or mask.prefix:
            return Step.pairs(self, mask)
        if mask.chunk:
            return in_chunk(length, mask.chunk)
        if mask.ratio:
            entries = floor_div(length, mask.ratio)
            return minimum(entries, mask.top_k) if mask.top_k else entries
        if mask.top_k and mask.block:
            return minimum(length, mask.top_k - mask.block + in_chunk(length, mask.block))
        limit = mask.window or mask.top_k
        return minimum(length, limit) if limit else length


def _bytes(x: Tensor | Use, letters: Mapping[str, int]) -> Num:
    """Bytes as elements x bytes per element wherever no block is padded, which keeps the formula a polynomial."""
    exact, fmt = nbytes(x), (x.tensor if isinstance(x, Use) else x).format
    plain = numel(x) * Fraction(fmt.bytes, fmt.elements)
    values = {"C": 0, "T": 0, **letters}
    same = isinstance(plain, Poly) and isinstance(exact, Poly) and plain(**values) == exact(**values)
    return plain if same else exact


# ---------------------------------------------------------------------- quantities
CONTEXT_LETTERS = {"C": "tokens of context", "T": "tokens of the input"}

PAPERS = {
    "flops": "FLOPs per token: Kaplan et al. 2020, arXiv:2001.08361, section 2.1",
    "train": "training FLOPs: PaLM, arXiv:2204.02311, appendix B; saved tensors: arXiv:2205.05198",
    "decode": "roofline: Williams et al., CACM 52(4), 2009; Pope et al. 2022, arXiv:2211.05102, section 2",
}
"""Quantity -> the paper that defines it."""


def sources_of(model: Model, quantity: str) -> list[str]:
    """Papers that define the blocks a formula is about and the quantity, then the sources of the spec's numbers."""
    found: list[str] = []
    for layer in walk_layers(model.layers):
        about = (layer.attention, layer.mixer, None if quantity == "kv_cache" else layer.ffn)
        found += [block.names(block.kind).paper for block in about if block is not None]
    papers = [paper for paper in dict.fromkeys((*found, PAPERS.get(quantity, ""))) if paper]
    return papers + [f"{s.id}: {s.title} {s.url}".strip() for s in model.sources]


def explain(model: Model, quantity: str, context: int = 2048, weights: str | None = None) -> Explanation:
    """The explanation of `params`, `active`, `weights`, `kv_cache`, `flops`, `decode` or `prefill`.

    context: tokens that FLOPs and decode are for. weights: format of the weights, default the checkpoint's
    own. Raises UnknownName for another quantity.
    """
    key = quantity.lower().replace("-", "_")
    key = SAME.get(key, key)
    if key not in QUANTITIES:
        known = ", ".join(QUANTITIES)
        raise UnknownName(f"no formula for {quote(quantity)}", hints=(f"a model's formulas: {known}",))
    if key == "decode" and model.architecture == "encoder":
        hints = (f"its one pass: `archsim explain {model.name} flops`",)
        raise UsageError(f"{model.name} is an encoder, which has no decode step", hints=hints)
    return QUANTITIES[key](model, context, choose_formats(model, weights))


def _params(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _one_token(model)
    parts = _by_owner(graph, lambda item: numel(item.tensor), letters, "parameters")
    whole = _formula(letters, "all", c.params(graph), "parameters")
    note = "tied weights once; buffers and optional parts (vision, MTP, pre-training heads) left out"
    return _explanation(model, "params", "Parameters", whole, parts, note)


def _active(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _one_token(model)
    whole = _formula(letters, "all", c.active_params(graph), "parameters")
    note = "all parameters less the routed experts that one token is not sent to; both embedding tables count"
    return _explanation(model, "active", "Parameters that one token uses", whole, (), note)


def _weights(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _one_token(model)
    parts = _by_owner(formats.apply(graph), lambda item: _bytes(item.tensor, letters), letters, "B", buffers=True)
    whole = _formula(letters, "all", sum(part.poly for part in parts), "B")
    note = f"format {formats.name}; block scales included; a short block that is padded shows as ceil_div"
    return _explanation(model, "weights", "Bytes of the weights", whole, parts, note)


def _kv_cache(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _one_token(model)
    graph = formats.apply(graph)
    states = c.inventory(graph, kind="state")
    parts = [_formula(letters, item.tensor.name, nbytes(item.tensor) * item.copies, "B") for item in states]
    whole = _formula(letters, "all", c.state_bytes(graph, role="kv"), "B per token")
    notes = [f"cache in {formats.kv.name}; growth per token of one sequence" + windows_note(model, formats)]
    if c.state_bytes(graph, role="recurrent"):
        notes.append("recurrent states are constant in length: they are among the parts, not in the growth")
    return _explanation(model, "kv_cache", "KV cache", whole, parts, *notes)


def _flops(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _step(model, context)
    decodes = model.architecture != "encoder"
    unit, where = ("FLOP per token", "one decode step") if decodes else ("FLOP", "one forward pass")
    work: dict[str, Num] = {cls: c.flops(graph, cls) for cls in ("matmul", "attention", "conv")}
    parts = [_formula(letters, cls, n, unit) for cls, n in work.items() if n]
    whole = _formula(letters, "all", c.flops(graph), unit)
    masked = f"{where}; 1 MAC = 2 FLOP; pairs that the mask excludes are not counted"
    return _explanation(model, "flops", "FLOPs", whole, parts, masked, "elementwise work is counted separately")


def _decode(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _step(model, context)
    graph = formats.apply(graph)
    parts = [
        _formula(letters, "weights", _weights_read(graph, letters), "B"),
        _formula(letters, "caches", c.state_bytes(graph), "B"),
        _formula(letters, "arithmetic", c.flops(graph), "FLOP"),
    ]
    whole = _formula(letters, "all", parts[0].poly + parts[1].poly, "B per step")
    notes = (
        "a step of one sequence reads every weight that its token uses and the caches once: "
        "time >= max(bytes / bandwidth, FLOP / peak)",
        "of an embedding table only one row is read; activations are small and stay on chip",
    )
    return _explanation(model, "decode", "Bytes of a decode step", whole, parts, *notes)


def _prefill(model: Model, context: int, formats: Formats) -> Explanation:
    letters, graph = _prompt(model, context)
    work: dict[str, Num] = {cls: c.flops(graph, cls) for cls in ("matmul", "attention", "conv")}
    parts = [_formula(letters, cls, n, "FLOP") for cls, n in work.items() if n]
    parts.append(_formula(letters, "weights", _weights_read(formats.apply(graph), letters), "B"))
    whole = _formula(letters, "all", c.flops(graph), "FLOP")
    notes = (
        "the prompt of one sequence in one pass; a batch takes as many: time >= max(FLOP / peak, bytes / bandwidth)",
        "1 MAC = 2 FLOP; pairs that the mask excludes are not counted; every weight is read once; the output head is "
        "computed for the last token alone",
    )
    return _explanation(model, "prefill", "FLOPs of a prefill", whole, parts, *notes)


def _train(model: Model, context: int, formats: Formats) -> Explanation:
    letters_model, letters = symbolic(model, keep=("W",))
    length: Num = context if model.encoder is not None else Poly.symbol("T")
    letters = {**letters, "T": context}
    graph = training_graph(letters_model, training_step_of(letters_model, 1, length), parts=("mlm-head",))
    flops = graph.flops
    parts = [
        _formula(letters, "forward", flops.forward, "FLOP"), _formula(letters, "backward", flops.backward, "FLOP"),
        _formula(letters, "run twice", flops.recompute, "FLOP"),
        _formula(letters, "without masks", flops.model_full, "FLOP"),
        _formula(letters, "kept for the backward", graph.saved_bytes, "B"),
        _formula(letters, "states", c.params(graph.forward) * STATE_BYTES, "B"),
    ]  # fmt: skip
    whole = _formula(letters, "all", flops.model_causal, "FLOP")
    notes = (
        f"forward and backward of one sequence of {context:,} tokens; 1 MAC = 2 FLOP; MFU with causal attention counts "
        "these, MFU with full attention those without masks, HFU what runs twice too (attention scores, recomputation)",
        "kept: tensors that the backward reads, in 16 bits with fused kernels and PyTorch's cross entropy, nothing "
        f"recomputed; states: {STATE_BYTES} bytes a parameter (bf16 weights and gradients, AdamW in fp32)",
        "memory, time and layouts of a run: `archsim train`",
    )
    return _explanation(model, "train", "FLOPs of training", whole, parts, *notes)


STATE_BYTES = 16
"""Of a parameter in mixed precision: weight 2, gradient 2, master weight and both moments 4 each (arXiv:1910.02054)."""


QUANTITIES: dict[str, Callable[[Model, int, Formats], Explanation]] = {
    "params": _params, "active": _active, "weights": _weights, "kv_cache": _kv_cache, "flops": _flops,
    "decode": _decode, "prefill": _prefill, "train": _train,
}  # fmt: skip
"""What can be explained of a model."""

SAME = {"ttft": "prefill", "tpot": "decode", "kv": "kv_cache", "parameters": "params", "training": "train"}
"""Other names of quantities."""


def _weights_read(graph: Block, letters: Mapping[str, int]) -> Num:
    """Bytes of weights that a step touches: of experts those it is sent to, of a table the rows looked up."""
    touched: dict[str, Num] = {}
    for op, times in ops(graph):
        for use in op.reads:
            tensor = use.tensor
            if tensor.kind == "weight" and (op.kind != "gather" or tensor.name not in touched):
                touched[tensor.name] = _bytes(use, letters) * times
    return sum(touched.values())


def _one_token(model: Model) -> tuple[dict[str, int], Block]:
    """Letters and graph of one token, windows as numbers: a cache of one token is never full."""
    letters_model, letters = symbolic(model, keep=("W",))
    return letters, lower(letters_model, step_for(letters_model, 1, 1))


def _step(model: Model, context: int) -> tuple[dict[str, int], Block]:
    """A decode step at context C, or an encoder's pass over T tokens."""
    spec, letters = symbolic(model, keep=("W",))
    if model.architecture == "encoder":
        return {**letters, "T": context}, lower(spec, step_for(spec, 1, Poly.symbol("T")))
    if model.encoder is not None:  # a step under way, whose encoder has run: its past must be a number
        return letters, lower(spec, step_for(spec, 1, 1, context - 1, context, absorbed=True))
    step = OneToken(seqs=(Seqs(1, 1, Poly.symbol("C") - 1, absorbed=True),))
    return {**letters, "C": context}, lower(spec, step)


def _prompt(model: Model, context: int) -> tuple[dict[str, int], Block]:
    """A prefill of T tokens; of an encoder-decoder, whose two sides cannot both be a letter, of so many."""
    spec, letters = symbolic(model, keep=("W",))
    length: Num = context if model.encoder is not None else Poly.symbol("T")
    return {**letters, "T": context}, lower(spec, step_for(spec, 1, length))


def _by_owner(
    graph: Block, size: Callable[[c.Item], Num], letters: Mapping[str, int], unit: str, buffers: bool = False
) -> list[Formula]:
    """One formula for every block that holds weights itself: the sizes of all copies."""
    sums: dict[str, Num] = {}
    for item in c.inventory(graph):
        if buffers or c.is_learned(item.tensor):
            owner = item.tensor.name.rpartition(".")[0] or "model"
            sums[owner] = sums.get(owner, 0) + size(item) * item.copies
    return [_formula(letters, name, n, unit) for name, n in sums.items()]


def _formula(letters: Mapping[str, int], part: str, n: Num, unit: str) -> Formula:
    return Formula(part=part, poly=Poly.of(n), letters=letters, unit=unit)


def _explanation(
    model: Model, key: str, title: str, whole: Formula, parts: Iterable[Formula], *notes: str
) -> Explanation:
    return Explanation(
        model=model.name, quantity=key, title=title, whole=whole, parts=tuple(parts), notes=notes,
        sources=tuple(sources_of(model, key)), meanings=CONTEXT_LETTERS | meanings(model),
    )  # fmt: skip
