"""What stands in the boxes of a drawing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from archsim.blocks.block import AttentionSpec, BlockSpec, FfnSpec
from archsim.blocks.layer import PARTS, Layer
from archsim.graph.graph import Op
from archsim.render.drawing.canvas import Line
from archsim.render.drawing.flow import Step
from archsim.render.drawing.plan import Plan, StackPlan, amount_text
from archsim.render.drawing.tally import Amount
from archsim.render.drawing.traits import WORDS, Box, embedding_lines, norm_box, output_title, part_box

Marks = Collection[tuple[str, str]]
FIELDS = {words: part for part, words in PARTS.items()}


def part_of(step: Step) -> str:
    """The field of a layer that a box is: `attention`, `mixer`, `cross_attention` or `ffn`; empty for another."""
    said = next((op.part for op in step.ops if op.part), "")
    if step.kind != "block" or not said:
        return ""
    return FIELDS.get(said, "ffn")


def spec_of(layer: Layer, step: Step) -> BlockSpec | None:
    """The block of a layer that a box is."""
    found = getattr(layer, part_of(step) or "name", None)
    return found if isinstance(found, BlockSpec) else None


def layer_step(plan: Plan, side: str, layer: Layer, step: Step, held: str, marked: Marks) -> list[Line]:
    """A box of a layer. held: its parameters and share of FLOP in words."""
    block = spec_of(layer, step)
    if block is not None:
        role = f"{side}{part_of(step).replace('_', ' ')}"
        lines = _of_box(part_box(role, block, 0), marked, held)
        if part_of(step) == "cross_attention":
            lines[0] = lines[0]._replace(text=f"Cross-attention ({block.label})")
        return lines
    if step.kind == "norm" and layer.norm is not None:
        box = norm_box(
            f"{side}norm", layer.post_norm if "_post_norm" in step.key and layer.post_norm else layer.norm, 0
        )
        differs = any(key in marked for key in box.keys)
        return [Line(" · ".join(part for part in (box.title, held) if part), marked=differs)]
    return _plain(step, held)


def root_step(plan: Plan, stack: StackPlan, step: Step, amount: Amount, marked: Marks) -> list[Line]:
    """A box before or behind the layers."""
    held = amount_text(plan, amount)
    model = plan.model
    if step.name in stack.titles:
        return _of_box(stack.titles[step.name], marked, held)
    part = next((op.part for op in step.ops if op.part), "")
    shared = _borrowed(plan, step.ops)
    same = "the table of the embedding" if model.encoder is None or part != "embedding" else "the same table"
    said = [same] if shared else []
    if part == "embedding" and step.name == "embedding":
        title = f"{stack.side.strip().capitalize()} embedding".strip().capitalize()
        box = Box(role=f"{stack.side}embedding", title=title, lines=tuple(embedding_lines(model, stack.embedding)))
        return _of_box(box, marked, *said, held)
    if part == "output head":
        return _of_box(
            Box(role="output", title=output_title(model)), marked, *said, f"{model.vocab_size:,} logits", held
        )
    if step.kind == "norm":
        norm = model.encoder.final_norm if stack.side and model.encoder else model.final_norm
        title = f"Final {norm.names(norm.kind).title}" if norm is not None else "Norm"
        return [Line(" · ".join(part for part in (title, held) if part))]
    return _plain(step, held)


def _borrowed(plan: Plan, ops: Sequence[Op]) -> bool:
    own = {id(op) for op in ops}
    return any(
        use.tensor.kind == "weight" and plan.tally.owners[use.tensor.name] not in own for op in ops for use in op.reads
    )


def _of_box(box: Box, marked: Marks, *remarks: str) -> list[Line]:
    title, *lines = box.keys
    found = [Line(title[1], bold=True, marked=title in marked)]
    found += [Line(text, marked=(role, text) in marked) for role, text in lines]
    return found + [Line(text, dim=True) for text in remarks if text]


def _plain(step: Step, held: str) -> list[Line]:
    name = humanize(", ".join(step.chain) or step.name)
    return [Line(" · ".join(part for part in (name, held) if part))]


def humanize(name: str) -> str:
    """A name of the graph in words."""
    words = name.strip("_+").replace("_", " ").removesuffix("()")
    return words[:1].upper() + words[1:] if len(words) > 2 else words


def inner_step(plan: Plan, side: str, spec: BlockSpec | None, step: Step, amount: Amount) -> list[Line]:
    """A box of a block's picture."""
    held = [Line(text, dim=True) for text in _held(plan, amount) if text]
    if step.kind == "input":
        return [Line(_input_words(step, side), dim=True)]
    if step.kind in ("linear", "conv"):
        return [Line(step.name, bold=True), *_shape(spec, step), *held]
    if step.kind == "norm":
        return [Line(_norm_words(step)), *held]
    if step.kind == "rotate":
        return [Line("RoPE")]
    if step.kind == "cache":
        return [Line(humanize(step.name)), Line(_cached(step), dim=True)]
    if step.kind == "core":
        return [Line(_core_title(step), bold=True), *_core_lines(spec, step), *held]
    if step.kind == "part":
        return [*_part_lines(spec, step), *held]
    if step.kind == "idle":
        return [Line("not used by this step", dim=True), *held]
    if step.kind == "table":
        return [Line(humanize(step.name)), *held]
    if step.kind == "block":
        return [Line(humanize(step.name), bold=True), *held]
    return [Line(ACTIVATIONS.get(step.ops[0].fn, humanize(step.ops[0].fn))), *held]


ACTIVATIONS = {
    "relu": "ReLU", "relu2": "ReLU²", "gelu": "GELU", "gelu_tanh": "GELU", "silu": "SiLU", "sigmoid": "sigmoid",
    "softplus": "softplus", "tanh": "tanh", "swiglu": "× SiLU(gate)", "geglu": "× GELU(gate)",
    "geglu_tanh": "× GELU(gate)", "reglu": "× ReLU(gate)", "clamped_swiglu": "× clamped SiLU(gate)",
    "clamped_geglu": "× clamped GELU(gate)", "xielu": "xIELU", "topk": "top-k", "softcap": "soft cap",
}  # fmt: skip


def _held(plan: Plan, amount: Amount) -> list[str]:
    held = amount.single or amount.params
    return [f"{held:,}" if held else "", plan.share(amount)]


def _input_words(step: Step, side: str) -> str:
    name = step.key.removeprefix("in ")
    if name.startswith("encoder.") and not side:
        return "output of the encoder"
    return "cache of an earlier layer" if name.rpartition(".")[2].endswith("_cache") else "input"


def _norm_words(step: Step) -> str:
    names = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "l2norm": "L2 norm"}
    return names[next(op.fn for op in step.ops if op.fn in names)]


def _shape(spec: BlockSpec | None, step: Step) -> list[Line]:
    """`7,168 → 128 × 192` and what the spec calls the sizes."""
    op = step.ops[0]
    weight = next(use.tensor for use in op.reads if use.tensor.kind == "weight")
    if op.cls == "conv":
        return [Line(f"width {weight.axes['W']:,}" if "W" in weight.axes else "convolution")]
    inner = [size for axis, size in weight.axes.items() if axis in weight.inner and size != 1]
    outer = [(axis, size) for axis, size in weight.axes.items() if axis not in weight.inner and size != 1]
    shape = f"{_times(inner)} → {_times([size for _, size in outer]) or '1'}"
    named = [WORDS.get(field, field) for axis, _ in outer if (field := _field(spec, axis))]
    return [Line(shape), *([Line(" × ".join(named), dim=True)] if named else [])]


def _field(spec: BlockSpec | None, axis: str) -> str:
    return type(spec).axis_fields.get(axis, "") if spec is not None else ""


def _times(sizes: Sequence[object]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)


def _cached(step: Step) -> str:
    tensor = step.ops[0].writes[0].tensor
    return f"{_times([size for axis, size in tensor.axes.items() if axis != 'C'])} per token"


def _core_title(step: Step) -> str:
    name = step.block.kernel if step.block is not None and step.block.kernel else step.name
    return name.replace("_", " ").upper() if len(name) < 4 else humanize(name)


def _core_lines(spec: BlockSpec | None, step: Step) -> list[Line]:
    """The mask of softmax attention, and the size of a state that does not grow."""
    found = mask_lines(spec, step)
    states = {use.tensor.name: use.tensor for op in step.ops for use in op.writes if use.tensor.kind == "state"}
    for tensor in states.values():
        if tensor.role == "recurrent":
            found.append(Line(f"state {_times([n for axis, n in tensor.axes.items() if axis != 'S' and n != 1])}"))
    return found


def mask_lines(spec: BlockSpec | None, step: Step) -> list[Line]:
    """What softmax attention goes over, in words."""
    softmax = next((op for op in step.ops if op.fn == "softmax"), None) if step.kind == "core" else None
    if softmax is None or not isinstance(spec, AttentionSpec):
        return []
    if softmax.attrs.get("mask") is None:
        return [Line("over the output of the encoder")]
    kept = getattr(spec, "indexer", None)
    return [Line(f"over the best {kept.top_k:,} keys" if kept else mask_words(spec))]


def mask_words(spec: AttentionSpec) -> str:
    """Which keys a query sees."""
    mask = spec.visible
    name = mask.names(mask.kind).words
    return f"{name}, window {mask.window:,}" if mask.window else name


def _part_lines(spec: BlockSpec | None, step: Step) -> list[Line]:
    """A part of a layer with experts."""
    experts = spec.experts if isinstance(spec, FfnSpec) else None
    title = humanize(step.key)
    if experts is None:
        return [Line(title, bold=True)]
    if any(op.fn == "dispatch" for op in step.ops):
        return [Line(f"{experts.total:,} experts, {experts.per_token:,} per token", bold=True), *_expert(spec)]
    if any(op.fn == "topk" for op in step.ops):
        return [Line(title, bold=True), *_router(spec, experts.total)]
    return [Line(title, bold=True)]


def _expert(spec: BlockSpec | None) -> list[Line]:
    expert = getattr(spec, "expert", None)
    if expert is None:
        return []
    return [Line(f"each {expert.activation_label}, intermediate size {expert.d_ff:,}")]


def _router(spec: BlockSpec | None, total: int) -> list[Line]:
    router = getattr(spec, "router", None)
    if router is None:
        return []
    groups = f", best {router.top_groups} of {router.groups} groups" if router.groups > 1 else ""
    return [Line(f"{total:,} scores, {router.score}{groups}")]
