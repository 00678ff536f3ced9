"""Feed-forward layers: two matrices, or three with a gate (arXiv:2002.05202)."""

from __future__ import annotations

from typing import Any, Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.block import Context, FfnSpec
from archsim.blocks.dispatch import About, Count, Fields, InvalidBlock
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import token_shift
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor

GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}
DEFAULT = {"mlp": "gelu", "glu": "silu", "swiglu": "silu", "geglu": "gelu", "reglu": "relu"}

LABELS = {
    "relu": "ReLU", "relu2": "ReLU²", "gelu": "GeLU", "gelu_tanh": "GeLU", "silu": "SiLU", "xielu": "xIELU",
    "tanh": "tanh", "sigmoid": "sigmoid", "situ": "SiTU",
}  # fmt: skip
GATED_LABELS = {
    "relu": "ReGLU", "gelu": "GeGLU", "gelu_tanh": "GeGLU", "silu": "SwiGLU", "sigmoid": "GLU",
    "tanh": "tanh-GLU", "situ": "SiTU-GLU",
}  # fmt: skip
"""Activation -> its name in tables, by itself and in a gate."""

VASWANI = "Vaswani et al. 2017, arXiv:1706.03762, section 3.3"
SHAZEER = "Shazeer 2020, arXiv:2002.05202, section 2"


def _kind(fields: Fields) -> str:
    """The kind of a network in normal form: the one that goes with its activation."""
    return GATED.get(fields["activation"], "glu").removesuffix("_tanh") if fields["gated"] else "mlp"


class Ffn(FfnSpec):
    """down(act(up x)) for `mlp`, down(act(gate x) * up x) for the gated kinds: 2·d·F or 3·d·F parameters.

    inner_norm: of what the last matrix reads (BitNet). bias: of all matrices; out_bias: of the last, where that is
    another matter (GTE). clamp: limit of gpt-oss' clamped SwiGLU or Phi-3-small's GeGELU; alpha: its sigmoid's slope;
    up_offset: what is added to the clamped `up`, 1 in those, 0 in DeepSeek-V4.
    beta: bound of SiTU's gate, beta·tanh(gate/beta)·sigmoid(gate); up_beta: that of `up`, where it has one (Kimi K3).
    token_shift: it reads a mixture of each token and the one before (RWKV).
    learned_scale: a learned factor on what it gives (Inkling).
    sparsity: share of activations that Gemma 3n zeroes, which changes results and no count. xIELU has two learned
    scalars and no gated form.
    """

    kind: Literal["mlp", "glu", "swiglu", "geglu", "reglu"]
    d_ff: Count
    activation: Literal["relu", "relu2", "gelu", "gelu_tanh", "silu", "xielu", "tanh", "sigmoid", "situ"] | None = None
    bias: bool = False
    out_bias: bool | None = None
    clamp: float | None = None
    alpha: float | None = None
    up_offset: float | None = None
    sparsity: float | None = None
    beta: float | None = None
    up_beta: float | None = None
    inner_norm: Norm | None = None
    token_shift: bool = False
    learned_scale: bool = False

    about = {
        "mlp": About("mlp", "Feed-forward", paper=f"feed-forward network: {VASWANI}"),
        "glu": About("glu", "Feed-forward, GLU", paper=f"gated feed-forward network: {SHAZEER}"),
        "swiglu": About("swiglu", "Feed-forward, SwiGLU", paper=f"gated feed-forward network: {SHAZEER}"),
        "geglu": About("geglu", "Feed-forward, GEGLU", paper=f"gated feed-forward network: {SHAZEER}"),
        "reglu": About("reglu", "Feed-forward, ReGLU", paper=f"gated feed-forward network: {SHAZEER}"),
    }
    decisions = {"gated": "gating", "bias": "biases", "out_bias": "biases", "inner_norm": "norm_place",
                 "token_shift": "mixing", "*": "activation"}  # fmt: skip
    words = {"bias": "feed-forward", "out_bias": "feed-forward output"}

    @model_validator(mode="after")
    def _meaningful(self) -> Ffn:
        if self.gated and self.activation == "xielu":
            raise InvalidBlock(f"`activation: xielu` has no gated form: `kind: mlp` has it, not `kind: {self.kind}`")
        if (self.activation == "situ") != (self.beta is not None) or (self.activation == "situ" and not self.gated):
            raise InvalidBlock("`activation: situ` is that of a gate and needs its bound, `beta`; others have none")
        for name in ("clamp", "sparsity"):
            if getattr(self, name) is not None and not self.gated:
                raise InvalidBlock(f"`{name}` belongs to a gate, which `kind: mlp` does not have")
        for name in ("alpha", "up_offset"):
            if getattr(self, name) is not None and self.clamp is None:
                raise InvalidBlock(f"`{name}` belongs to a clamped gate, so it needs `clamp`")
        return self

    @property
    def gated(self) -> bool:
        """Whether there is a third, gating matrix."""
        return self.kind != "mlp"

    @property
    def act(self) -> str:
        """The activation's name."""
        return self.activation or DEFAULT[self.kind]

    @property
    def activation_label(self) -> str:
        """The name of the activation, gated or not."""
        return (GATED_LABELS if self.gated else LABELS).get(self.act, self.act)

    def normal_form(self, fields: Fields) -> Fields:
        """`gated` and the activation instead of `kind`."""
        own = {name: value for name, value in fields.items() if name != "kind"}
        own["out_bias"] = None if self.out_bias == self.bias else self.out_bias
        return own | {"gated": self.gated, "activation": self.act}

    @classmethod
    def to_document(cls, fields: Fields) -> Fields:
        """With its `kind`."""
        own = {name: value for name, value in fields.items() if name != "gated"}
        return own | {"kind": _kind(fields)}

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """The kind that goes with its activation."""
        return super().describe(fields | {"kind": _kind(fields)})

    def activate(self, b: Builder, up: Tensor, gate: Tensor | None) -> Tensor:
        """The activation of `up`, multiplied in when there is a `gate`."""
        names = ("clamp", "alpha", "up_offset", "sparsity", "beta", "up_beta")
        attrs: dict[str, Any] = {name: getattr(self, name) for name in names}
        attrs = {k: v for k, v in attrs.items() if v is not None}
        if gate is None:
            scalars = (b.weight("xielu", "Sc", "scalar"),) if self.act == "xielu" else ()
            return b.map("h", self.act, up, *scalars, **attrs)
        if self.clamp is not None:
            return b.map("h", "clamped_swiglu" if self.act == "silu" else "clamped_geglu", gate, up, **attrs)
        if self.act == "situ":
            return b.map("h", "situglu", gate, up, **attrs)
        if self.act not in GATED:
            return b.map("h", "mul", b.map("gate()", self.act, gate), up)
        return b.map("h", GATED[self.act], gate, up, **attrs)

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "ffn") -> Tensor:
        """Tensor over T and D to tensor over T and D."""
        with b.block(name, F=self.d_ff, Sc=2, One=1, S=ctx.step.n_seqs):
            if self.token_shift:
                (x,) = token_shift(b, x, "k")
            up = b.linear("up", x, "D F", "T F", bias=self.bias)
            gate = b.linear("gate", x, "D F", "T F", bias=self.bias) if self.gated else None
            last = self.bias if self.out_bias is None else self.out_bias
            h = self.weighted(b, self.activate(b, up, gate), ctx)
            if self.inner_norm is not None:
                h = self.inner_norm.lower(b, "inner_norm", h, "F")
            y = b.linear("down", h, "F D", "T D", bias=last)
            return b.map("scaled", "mul", y, b.weight("scale", "One", "scalar")) if self.learned_scale else y

    def weighted(self, b: Builder, h: Tensor, ctx: Context) -> Tensor:
        """The inner activations, with the weights that something else gives them."""
        return h
