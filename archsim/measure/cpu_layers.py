"""Stacks of layers in which kernels of a processor are timed one by one: shapes, and the calls that they make.

A kernel that runs over and over by itself finds its code, its operands and the interpreter's own data in the caches
nearest to the core. In a model it runs behind products that stream tens of megabytes, and takes two to eight times as
long where it is small. So each is timed in its place, in stacks of layers of shapes that no model of the catalog has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.counts.count import count
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import StepGraphs
from archsim.graph.kernels import kernels
from archsim.graph.step import Seqs, Step
from archsim.measure.point import DIMS, Key, Point
from archsim.spec.load import model_from
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.classes.call import KernelCall
from archsim.timing.cpu_calls import CpuCall, calls_by_op
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import CallRules
from archsim.timing.step_pricer import step_bytes

ENGINES = {"eager": "torch", "compiled": "torchcompile"}
FORMATS = {"fp32": "fp32", "bf16": "bf16", "int8": "int8_dynamic"}
"""Number formats in which models are timed on a processor, and the format of their weights."""
SUITE = "cpu_layers"
LONGEST_S = 3.0
"""Expected seconds of a pass's rounds beyond which it is left out."""
RATE = 1.2e11
"""FLOP/s that expected times are made of."""
BUILT_S = 0.6
"""Seconds of drawing the weights of a stack."""
ROUNDS, FEWEST, SHORT_S = 6, 3, 0.1
"""Rounds of a pass, and how few there are of one that takes longer than so many seconds."""
FIRST, TWICE = 4, 2
"""Shapes of each layer that are also compiled, and those that are also timed of a single layer."""
FUSED = ("gated", "windowed", "crossing")
"""Kinds of layers that are also compiled."""
NARROW = {"bf16": 7, "int8": 4}
NARROWED = ("gated", "learned")
"""Shapes of each layer that are also timed in narrower formats, and the kinds of layers that are."""

Shape = tuple[int, int, int]
PREFILLS: tuple[Shape, ...] = ((1, 16, 0), (1, 128, 0), (1, 512, 0), (1, 2048, 0))
DECODES: tuple[Shape, ...] = ((1, 1, 128), (8, 1, 512), (1, 1, 1024), (32, 1, 256), (1, 1, 4096))
DEEP_BYTES = 2.2e8
"""Weights of a stack, several times the last cache, as large as those that a model keeps in one piece."""
DEEPEST = 20


class Layer(NamedTuple):
    """One layer of a kind of model, at sizes of its own. held: kept out of fits."""

    kind: str
    sizes: tuple[tuple[str, int], ...]
    held: bool = False

    def document(self, depth: int) -> JsonObject:
        """The spec of so many layers, with a small vocabulary unless stated."""
        sizes = dict(self.sizes)
        found: JsonObject = {
            "name": self.name, "d_model": sizes["d"], "vocab_size": sizes.get("vocab", 4096),
            "max_context": 8192, "weights": {"default": "fp32"},
        }  # fmt: skip
        found |= {} if self.kind == "bidirectional" else {"head": {"tied": True}}
        return found | KINDS[self.kind](sizes | {"depth": depth})

    @property
    def name(self) -> str:
        """The layer in one word."""
        return "-".join((self.kind, *(f"{key}{value}" for key, value in self.sizes)))

    @property
    def shapes(self) -> Iterator[Shape]:
        """Passes that are timed, the most telling first."""
        decodes = () if self.kind == "bidirectional" else DECODES
        for i in range(max(len(PREFILLS), len(decodes))):
            yield from decodes[i : i + 1]
            yield from PREFILLS[i : i + 1]


class Pass(NamedTuple):
    """One pass through a stack of so many layers, and how its calls run."""

    layer: Layer
    depth: int
    shape: Shape
    form: str
    dtype: str

    @property
    def id(self) -> str:
        """The pass in one word."""
        return "/".join((self.layer.name, str(self.depth), *map(str, self.shape), self.form, self.dtype))


def _rms(sizes: Mapping[str, int]) -> JsonObject:
    return {"kind": "rmsnorm", "eps": 1e-6}


def _heads(sizes: Mapping[str, int], kind: str = "gqa") -> JsonObject:
    return {"kind": kind, "n_heads": sizes["heads"], "n_kv_heads": sizes["kv"], "d_head": sizes["dim"]}


def _learned(sizes: Mapping[str, int]) -> JsonObject:
    """GPT-2's layer."""
    norm = {"kind": "layernorm", "eps": 1e-5}
    attention = {"kind": "mha", "n_heads": sizes["heads"], "d_head": sizes["dim"], "bias": True}
    ffn = {"kind": "mlp", "activation": "gelu_tanh", "d_ff": sizes["ff"], "bias": True}
    return {
        "embedding": {"positions": {"kind": "learned", "max": 8192}}, "final_norm": norm,
        "layers": [{"repeat": sizes["depth"], "norm": norm, "attention": attention, "ffn": ffn}],
    }  # fmt: skip


def _gated(sizes: Mapping[str, int]) -> JsonObject:
    """Llama's layer, or Qwen3's with norms of queries and keys."""
    attention = _heads(sizes) | {"position": {"kind": "rope", "theta": 10000}}
    attention |= {"qk_norm": _rms(sizes)} if sizes.get("qk_norm") else {}
    ffn = {"kind": "swiglu", "d_ff": sizes["ff"]}
    layer = {"repeat": sizes["depth"], "norm": _rms(sizes), "attention": attention, "ffn": ffn}
    return {"final_norm": _rms(sizes), "layers": [layer]}


def _windowed(sizes: Mapping[str, int]) -> JsonObject:
    """Gemma 3's local layer: norms on both sides, a window."""
    norm = _rms(sizes) | {"offset": True}
    attention = {
        "kind": "mqa", "n_heads": sizes["heads"], "d_head": sizes["dim"], "qk_norm": norm,
        "mask": {"kind": "sliding", "window": sizes["window"]}, "position": {"kind": "rope", "theta": 10000},
    }  # fmt: skip
    ffn = {"kind": "geglu", "activation": "gelu_tanh", "d_ff": sizes["ff"]}
    layer = {"repeat": sizes["depth"], "norm": norm, "placement": "pre+post", "attention": attention, "ffn": ffn}
    return {"embedding": {"scale": "sqrt_d_model"}, "final_norm": norm, "layers": [layer]}


def _latent(sizes: Mapping[str, int]) -> JsonObject:
    """Latent attention."""
    attention = {
        "kind": "mla", "n_heads": sizes["heads"], "q_rank": sizes["q_rank"], "kv_rank": sizes["kv_rank"],
        "d_nope": sizes["dim"], "d_rope": sizes["dim"] // 2, "d_v": sizes["dim"],
        "position": {"kind": "rope", "theta": 10000},
    }  # fmt: skip
    ffn = {"kind": "swiglu", "d_ff": sizes["ff"]}
    layer = {"repeat": sizes["depth"], "norm": _rms(sizes), "attention": attention, "ffn": ffn}
    return {"final_norm": _rms(sizes), "layers": [layer]}


def _experts(sizes: Mapping[str, int]) -> JsonObject:
    """A mixture of experts."""
    ffn = {"kind": "moe", "n_experts": sizes["experts"], "top_k": sizes["top_k"],
           "expert": {"kind": "swiglu", "d_ff": sizes["ff"]}}  # fmt: skip
    attention = _heads(sizes) | {"position": {"kind": "rope", "theta": 10000}}
    layer = {"repeat": sizes["depth"], "norm": _rms(sizes), "attention": attention, "ffn": ffn}
    return {"final_norm": _rms(sizes), "layers": [layer]}


def _scan(sizes: Mapping[str, int]) -> JsonObject:
    """Mamba's layer."""
    mixer = {"kind": "mamba", "d_inner": sizes["inner"], "d_state": 16, "d_conv": 4, "dt_rank": sizes["d"] // 16}
    return {"final_norm": _rms(sizes), "layers": [{"repeat": sizes["depth"], "norm": _rms(sizes), "mixer": mixer}]}


def _bidirectional(sizes: Mapping[str, int]) -> JsonObject:
    """BERT's layer."""
    norm = {"kind": "layernorm", "eps": 1e-12}
    attention = {"kind": "mha", "n_heads": sizes["heads"], "d_head": sizes["dim"], "bias": True,
                 "mask": {"kind": "bidirectional"}}  # fmt: skip
    ffn = {"kind": "mlp", "activation": "gelu", "d_ff": sizes["ff"], "bias": True}
    return {
        "architecture": "encoder", "pooler": True,
        "embedding": {"norm": norm, "positions": {"kind": "learned", "max": 8192}, "token_types": 2},
        "layers": [{"repeat": sizes["depth"], "norm": norm, "placement": "post", "attention": attention, "ffn": ffn}],
    }  # fmt: skip


def _crossing(sizes: Mapping[str, int]) -> JsonObject:
    """T5's layers: biases of relative positions, attention to a source."""
    own = {"kind": "mha", "n_heads": sizes["heads"], "d_head": sizes["dim"], "scale": 1.0,
           "position": {"kind": "t5", "buckets": 32, "max_distance": 128}}  # fmt: skip
    cross = {"kind": "mha", "n_heads": sizes["heads"], "d_head": sizes["dim"], "scale": 1.0}
    ffn = {"kind": "mlp", "activation": "relu", "d_ff": sizes["ff"]}
    encoding = {
        "repeat": sizes["depth"],
        "norm": _rms(sizes),
        "attention": own | {"mask": {"kind": "bidirectional"}},
        "ffn": ffn,
    }
    decoding = {"repeat": sizes["depth"], "norm": _rms(sizes), "attention": own, "cross_attention": cross, "ffn": ffn}
    return {
        "architecture": "encoder-decoder", "final_norm": _rms(sizes), "head": {"tied": True, "scale": 0.05},
        "encoder": {"final_norm": _rms(sizes), "layers": [encoding]}, "layers": [decoding],
    }  # fmt: skip


KINDS = {
    "learned": _learned, "gated": _gated, "windowed": _windowed, "latent": _latent, "experts": _experts,
    "scan": _scan, "bidirectional": _bidirectional, "crossing": _crossing,
}  # fmt: skip


def _sizes(d: int, ff: int, heads: int = 0, kv: int = 0, dim: int = 64, **more: int) -> tuple[tuple[str, int], ...]:
    heads = heads or d // dim
    return (("d", d), ("ff", ff), ("heads", heads), ("kv", kv or heads), ("dim", dim), *more.items())


def _mixer(d: int) -> tuple[tuple[str, int], ...]:
    return ("d", d), ("inner", 2 * d)


LAYERS = (
    Layer("gated", _sizes(1280, 3584, 20, 5)),
    Layer("learned", _sizes(640, 2560)),
    Layer("gated", _sizes(704, 1792, 11, 11)),
    Layer("gated", _sizes(1792, 4736, 14, 2, 128), held=True),
    Layer("learned", _sizes(1536, 6144)),
    Layer("gated", _sizes(1536, 5120, 12, 12, 128, qk_norm=1)),
    Layer("windowed", _sizes(1024, 5632, 8, 1, 128, window=256)),
    Layer("learned", _sizes(896, 3584), held=True),
    Layer("crossing", _sizes(640, 1792)),
    Layer("bidirectional", _sizes(1024, 4096)),
    Layer("latent", _sizes(1280, 3584, 20, 0, 64, q_rank=512, kv_rank=320)),
    Layer("scan", _mixer(896), held=True),
    Layer("experts", _sizes(1088, 640, 17, 17, 64, experts=16, top_k=2)),
    Layer("scan", _mixer(640)),
    Layer("scan", _mixer(1024)),
    Layer("experts", _sizes(1152, 896, 18, 6, 64, experts=20, top_k=2), held=True),
    Layer("gated", _sizes(2048, 4608, 16, 4, 128)),
    Layer("experts", _sizes(1280, 768, 20, 5, 64, experts=24, top_k=4)),
    Layer("windowed", _sizes(1408, 6144, 5, 1, 256, window=512)),
    Layer("windowed", _sizes(1216, 5888, 6, 1, 192, window=384), held=True),
    Layer("bidirectional", _sizes(640, 2560)),
    Layer("gated", _sizes(512, 2048, 8, 2, 64, vocab=60000)),
    Layer("latent", _sizes(768, 2304, 12, 0, 64, q_rank=256, kv_rank=192)),
    Layer("bidirectional", _sizes(832, 3328), held=True),
    Layer("crossing", _sizes(1088, 3072)),
    Layer("gated", _sizes(960, 2560, 15, 5, 64, qk_norm=1, vocab=120000)),
    Layer("crossing", _sizes(576, 2304), held=True),
)  # fmt: skip
"""In the order in which they are timed; none is a layer of a model of the catalog."""


@cache
def model_of(layer: Layer, depth: int, dtype: str) -> Model:
    """The stack as a model; what is quantised is made of fp32."""
    wide = dtype if FORMATS[dtype] == dtype else "fp32"
    return model_from(layer.document(depth) | {"weights": {"default": wide}}, layer.name)


@cache
def deep(layer: Layer) -> int:
    """How many layers make a stack whose weights come from memory."""
    one, two = (count(model_of(layer, depth, "fp32"), input_len=1).total for depth in (1, 2))
    return int(min(max(DEEP_BYTES / (4 * (two - one)), 2), DEEPEST))


def step_of(model: Model, shape: Shape) -> Step:
    """A pass of a program: every pair below the diagonal, logits of the last token."""
    batch, new, past = shape
    source = (Seqs(batch, past or new, 0),) if model.encoder is not None else ()
    return Step.of(batch, new, past, masked=False, absorbed=past > 0, source=source)


def calls_of(one: Pass, machine: DeviceRates) -> list[CpuCall]:
    """The calls of a pass, by the ops that each runs."""
    model = model_of(one.layer, one.depth, one.dtype)
    step, formats = step_of(model, one.shape), choose_formats(model, FORMATS[one.dtype], engine=ENGINES[one.form])
    graph = StepGraphs(model, formats).rank(step, Plan())
    return calls_by_op(kernels(graph), CallRules(step, machine), one.form, step_bytes(graph))


def passes() -> Iterator[tuple[int, Pass]]:
    """Every pass with its rank, layer by layer; what has to be compiled first comes later, narrow formats last."""
    for layer in LAYERS:
        for place, shape in enumerate(layer.shapes):
            depth = deep(layer)
            yield 0, Pass(layer, depth, shape, "eager", "fp32")
            if place < FIRST and layer.kind in FUSED:
                yield 1, Pass(layer, depth, shape, "compiled", "fp32")
        for place, shape in enumerate(layer.shapes):
            if place < TWICE:
                yield 1, Pass(layer, 1, shape, "eager", "fp32")
        for dtype in NARROW if layer.kind in NARROWED else ():
            for shape in list(layer.shapes)[: NARROW[dtype]]:
                yield 2, Pass(layer, deep(layer), shape, "eager", dtype)


def layer_points(machine: DeviceRates) -> Iterator[Point]:
    """Every call of every pass as a point; of alike ones of a pass the first. Of a compiled pass only what is compiled,
    and of a quantised one only what is quantised, since the rest is that of the eager one in fp32.
    """
    built = None
    for rank, one in passes():
        calls = calls_of(one, machine)
        seconds = expected_s(one, calls)
        if seconds > LONGEST_S:
            continue
        weights = 0.0 if built == (one.layer, one.depth, one.dtype) else BUILT_S
        built, seen = (one.layer, one.depth, one.dtype), set[Key]()
        for call, ops, _ in calls:
            point = _point(one, call, ops, rank, seconds + weights if not seen else 0.002)
            new = call.dtype == one.dtype and (one.form == "eager" or call.kernel.startswith("compiled"))
            if new and point.key("") not in seen:
                seen.add(point.key(""))
                yield point


def expected_s(one: Pass, calls: Sequence[CpuCall]) -> float:
    """Seconds of a program and its rounds."""
    batch, new, _ = one.shape
    weights = sum(float(c.dims["n"] * c.dims["k"] * times) for c, _, times in calls if "k" in c.dims)
    each = 2 * batch * new * weights / RATE + sum(float(times) for *_, times in calls) * 1e-4 + weights / 4e9
    return 0.1 + each * (1 + (ROUNDS if each < SHORT_S else FEWEST))


def _point(one: Pass, call: KernelCall, ops: Sequence[str], rank: int, seconds: float) -> Point:
    dims = {name: round(float(value)) for name, value in call.dims.items() if name in DIMS}
    return Point(
        suite=SUITE, op=call.kernel_class, kernel=call.kernel, dims=dims, dtype=call.dtype, kv_dtype=call.kv_dtype,
        rank=rank, held=one.layer.held, seconds=seconds, within=one, ops=frozenset(ops),
        l2="cold" if one.depth > 1 else "warm",
    )  # fmt: skip
