"""Which format each tensor class is stored in, and what of that had to be assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from archsim.base.data_class import dataclass
from archsim.base.errors import UsageError
from archsim.base.notes import Note
from archsim.blocks.layer import walk_layers
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.graph.graph import Block
from archsim.graph.passes.quantize import DEFAULT, quantize, weight_format
from archsim.graph.tensor import BF16, Format, Tensor
from archsim.spec.format import FormatSpec, load_format, stored_format
from archsim.spec.model import Model, StatedCache

WIDE = "fp32"
"""The format of modules that compute and cache in it, where an engine's document says so."""

CONVERTIBLE = ("linear", "expert", "head", "embedding")
"""Weight classes that a format document can apply to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats of one estimate. name: of the weights, as shown. tensors: of single weights, by their names,
    where a file type mixes formats.
    """

    name: str
    weights: Mapping[str, Format]
    kv: Format
    activations: Format
    assumptions: tuple[Note, ...] = ()
    tensors: Mapping[str, Format] = field(default_factory=dict)

    def apply(self, graph: Block) -> Block:
        """The graph with these formats."""
        return quantize(graph, self.weights, self.kv, self.activations, self.tensors)

    def format_of(self, weight: Tensor) -> Format:
        """The format that a weight is stored in."""
        return weight_format(weight, self.weights, self.tensors)

    def stored(self, weight: Tensor) -> Tensor:
        """A weight in its format."""
        return weight.stored_as(self.format_of(weight))

    def tower_bytes(self, params: int, own: str | None = None) -> int:
        """Bytes of a tower of so many parameters, stored in its own format, else in the default one."""
        stored = stored_format(own) if own else self.weights[DEFAULT]
        return -(-params * stored.bytes // stored.elements)


def choose_formats(
    model: Model, weights: str | None = None, kv_cache_dtype: str | None = None, imatrix: bool | None = None,
    engine: str = DEFAULT_ENGINE,
) -> Formats:  # fmt: skip
    """The model's native formats, or those asked for.

    `weights` converts the classes that the format document names; others keep the model's default. A file type that
    mixes formats names one for every weight; imatrix: whether it was made with an importance matrix, None for what
    it needs. Activations are 16-bit: bf16, or fp16 where the model is; caches as well, unless told, or unless the
    engine follows what checkpoints in such weights say of their caches. Raises UsageError for a format that cannot
    hold a cache, or that the model has no weights for.
    """
    asked, notes = _for_model(model, None if weights in (None, "auto") else str(weights))
    asked = engine_file_type(model, asked, engine)
    if own := own_scheme(model, asked):
        text = f"the checkpoint of {model.name} is in {own}: that is what --weights {asked} means here"
        asked, notes = None, [*notes, Note("A35", text)]
    elif asked is not None and load_format(asked).name in FAMILIES:
        notes = [*notes, _own_quantiser(asked)]
    notes = [*model.remarks, *notes]
    name, chosen, tensors = _weights(model, asked, imatrix)
    chosen = _as_multiplied(chosen, engine)
    sixteen = load_format("fp16" if chosen[DEFAULT].name == "fp16" else "bf16").format()
    if chosen[DEFAULT].name == WIDE and choose_engine(engine).rules.formats.activations == "weights":
        sixteen = load_format(WIDE).format()
    kv = cache_format(kv_cache_dtype)
    _check_cache(kv, engine)
    if kv is None:
        kv, why = _usual_cache(engine, name if asked else None, model.kv_cache, sixteen)
        notes.append(Note("A10", f"KV cache in {kv.name} ({why} unless --kv-cache-dtype says otherwise)"))
    return Formats(name=name, weights=chosen, kv=kv, activations=sixteen, assumptions=tuple(notes), tensors=tensors)


def _check_cache(kv: Format | None, engine: str) -> None:
    """Raises UsageError (E121) for a cache format that is asked for and that the engine does not have."""
    rules = choose_engine(engine).rules
    if kv is None or not rules.formats.caches or kv.name in rules.formats.caches:
        return
    runs = ", ".join(rules.formats.caches)
    hint = f"{rules.title} has {runs}, for example: `--kv-cache-dtype {rules.formats.kv_cache}`"
    raise UsageError(f"{rules.title} has no {kv.name} cache", code="E121", hints=(hint,))


def _as_multiplied(chosen: dict[str, Format], engine: str) -> dict[str, Format]:
    """Formats of the weights as the engine multiplies them: by 8-bit activations at their rate, where the device has
    units for 4 bits and the engine quantises activations for them, whatever their documents say of other engines.
    """
    narrow = () if engine == DEFAULT_ENGINE else choose_engine(engine).rules.formats.quantised_on_fp4
    return {
        role: replace(fmt, compute=f"fp8@fp4/{fmt.compute}") if fmt.name in narrow else fmt
        for role, fmt in chosen.items()
    }


FAMILIES = {"fp8": frozenset({"fp8_block"})}
"""A word for a format -> schemes of the same arithmetic that it can mean where a checkpoint is stored in them."""


def _own_quantiser(asked: str) -> Note:
    """Which scales a word for a format means where the checkpoint has none."""
    spec = load_format(asked)
    others = " or ".join(sorted(FAMILIES[spec.name]))
    text = f"{spec.name}: {spec.title}, as engines quantise 16-bit checkpoints themselves (other scales: {others})"
    return Note("A53", text)


def own_scheme(model: Model, asked: str | None) -> str | None:
    """The scheme that the model's checkpoint is stored in, where what is asked for is a word for its family: engines
    load the scales that are there, and do not quantise anew. None where nothing stands for anything.
    """
    meant = FAMILIES.get(load_format(asked).name, frozenset()) if asked is not None else frozenset()
    stored = {model.weights[role] for role in ("linear", "expert") if role in model.weights}
    return min(stored) if stored and stored <= meant else None


def engine_file_type(model: Model, asked: str | None, engine: str) -> str | None:
    """The weight format that is asked for, or the engine's file type of it where the checkpoint's own format reaches
    the engine only converted: llama.cpp runs MXFP4 checkpoints from files whose other tensors are in q8_0.
    """
    own = model.weights.get("expert")
    if engine == DEFAULT_ENGINE or own is None or (asked is not None and load_format(asked).name != own):
        return asked
    return choose_engine(engine).rules.formats.native.get(own, asked)


def _usual_cache(engine: str, converted: str | None, stated: StatedCache | None, sixteen: Format) -> tuple[Format, str]:
    """The cache format where none is asked for, and why. converted: the format that weights were converted to; stated:
    what a checkpoint that is loaded as it is says of its caches.
    """
    if engine == DEFAULT_ENGINE:
        return sixteen, "16 bits"
    rules = choose_engine(engine).rules
    if converted is None and stated is not None and stated.format in rules.formats.follows.get(stated.method, ()):
        return _cache_format(stated.format), f"the checkpoint asks for it, which {rules.title} follows,"
    if converted is not None and converted in rules.memory.cache_formats:
        found = _cache_format(rules.memory.cache_formats[converted])
        return found, f"{rules.title} follows {converted} checkpoints, which ask for it,"
    return sixteen, "16 bits"


Chosen = tuple[str, dict[str, Format], dict[str, Format]]
"""Name of the weights' format, formats by class, and formats by tensor name."""


def _weights(model: Model, asked: str | None, imatrix: bool | None) -> Chosen:
    """The formats of the weights: the model's own, or those of a name."""
    if asked is None:
        native = {role: stored_format(name) for role, name in model.weights.items() if "." not in role}
        tensors = {name: stored_format(text) for name, text in model.weights.items() if "." in name}
        return _native_name(native), native, tensors
    spec = load_format(asked)
    if spec.mixture is not None:
        return _mixture(spec, model, imatrix)
    others = spec.others or _sixteen_bit_default(model.weights[DEFAULT])
    default = spec if spec.applies_to == "all" else load_format(others)
    classes = {} if spec.applies_to == "all" else _convertible_formats(spec)
    return spec.name, {DEFAULT: default.format(), **classes}, {}


def _sixteen_bit_default(default: str) -> str:
    """What stays beside converted weights: the model's own default, but 16 bits where that is 32."""
    return "bf16" if load_format(default).name == "fp32" else default


def _for_model(model: Model, asked: str | None) -> tuple[str | None, list[Note]]:
    """The format that is asked for; of one for experts alone, where the model has none, its counterpart for all linear
    weights, which a note says. Raises UsageError (E121) where there is no counterpart.
    """
    if asked is None:
        return None, []
    spec = load_format(asked)
    if not spec.applies_to:
        hint = f"as a cache: `--kv-cache-dtype {spec.name}`"
        raise UsageError(f"{spec.name} is a format of caches, not of weights", code="E121", hints=(hint,))
    experts = any(layer.ffn is not None and layer.ffn.experts for layer in walk_layers(model.layers))
    if spec.mixture is not None or experts or spec.applies_to != ("expert",):
        return asked, []
    text = f"{spec.name} is a format of experts, of which {model.name} has none"
    if not spec.without_experts:
        raise UsageError(text, code="E121", hints=("`archsim list formats` shows formats for all linear weights",))
    return spec.without_experts, [Note("A11", f"{text}: {spec.without_experts}, for all linear weights, is used")]


def _mixture(spec: FormatSpec, model: Model, imatrix: bool | None) -> Chosen:
    """The formats of a file type."""
    from archsim.spec.mixture import formats_of

    assert spec.mixture is not None
    main, kept = spec.format(), stored_format(spec.mixture.kept)
    classes = {DEFAULT: kept, "linear": main, "expert": main}
    return spec.name, classes, formats_of(spec, model, imatrix)


def _convertible_formats(spec: FormatSpec) -> dict[str, Format]:
    fmt = spec.format()
    return {role: fmt for role in CONVERTIBLE if role in spec.applies_to}


def _native_name(native: Mapping[str, Format]) -> str:
    """One name for the checkpoint's own mixture: that of its largest class."""
    for role in ("expert", "linear", DEFAULT):
        if role in native:
            return native[role].name
    return BF16.name


def cache_format(name: str | None) -> Format | None:
    """The format of a cache by name; None where none is asked for. Raises UsageError, UnknownName."""
    return None if name in (None, "auto") else _cache_format(name)


def _cache_format(name: str | None) -> Format:
    spec = load_format(str(name))
    if not spec.kv:
        raise UsageError(
            f"`{spec.name}` is not a KV cache format", code="E121", hints=("try bf16, fp16, fp8, int8 or q8_0",)
        )
    return spec.format()
