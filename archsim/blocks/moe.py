"""Mixture of experts: a router sends each token to top_k of n_experts feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num, divide, minimum, opaque
from archsim.blocks import tiny
from archsim.blocks.block import LATE, Context, Experts, FfnSpec
from archsim.blocks.dispatch import CLASS, About, Changes, Count, Fields, InvalidBlock, Spec
from archsim.blocks.ffn import Ffn
from archsim.blocks.norm import Norm
from archsim.graph.builder import Builder, Operand
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor


def expected_experts(n_experts: Num, top_k: Num, tokens: Num) -> Num:
    """Distinct experts that `tokens` tokens hit when each picks top_k of n_experts evenly.

    E·(1 - (1 - k/E)^T): the expectation over independent tokens; exactly k for one token.
    """
    if isinstance(tokens, int) and tokens == 1:
        return top_k
    return experts_hit(n_experts, top_k, tokens)


@opaque
def experts_with_weights(n_experts: Num, top_k: Num, without: Num) -> Num:
    """k·E / (E + Z): of the k experts that a token goes to, those with weights, where Z have none."""
    return divide(top_k * n_experts, n_experts + without)


@opaque
def experts_hit(n_experts: Num, top_k: Num, tokens: Num) -> Num:
    """E·(1 - (1 - k/E)^T)."""
    return n_experts * (1 - (1 - top_k / n_experts) ** tokens)


SHARED_WEIGHTS = "weights of shared experts"
"""Under which a router leaves the weights of shared experts for them."""


class Router(Spec):
    """How experts are chosen. score: softmax, sigmoid or root of the softplus of the logits. order: scores are taken
    before the top-k or over the chosen logits only (gpt-oss, Mixtral's equals either). normalize: weights of the
    chosen sum to 1. groups, top_groups: experts are chosen from the best groups only. scale: factor on the weights.
    bias: learned logit bias. selection_bias: a bias that only the choice sees (balancing without an auxiliary loss,
    updated by rule, not by gradient: a buffer, unless checkpoints count it as a `parameter`, as Trinity's do).
    choice: tokens pick experts, or experts pick tokens. input_scaled: the weight multiplies the expert's input (Llama
    4). input_norm: a norm of the router's own; expert_scale: a learned factor on the weight of each expert (Gemma 4).
    by_token: a table that is not learned says which experts a token of the vocabulary goes to; the scores are their
    weights alone (DeepSeek-V4's first layers). pass_through: experts without weights that give back what they get
    (LongCat): tokens spread over all evenly, so fewer rows are computed. with_shared: the shared experts have logits
    as well, and weights that sum to 1 with those of the chosen; learned_scale: a learned factor on all of them
    (Inkling).
    """

    score: Literal["softmax", "sigmoid", "sqrt_softplus"] = "softmax"
    order: Literal["score_then_topk", "topk_then_score"] = "score_then_topk"
    normalize: bool = True
    groups: Count = 1
    top_groups: Count = 1
    group_score: Literal["max", "top2_sum"] = "top2_sum"
    scale: float = 1.0
    bias: bool = False
    selection_bias: bool | Literal["parameter"] = False
    choice: Literal["token", "expert"] = "token"
    input_scaled: bool = False
    softcap: float | None = None
    input_norm: Norm | None = None
    expert_scale: bool = False
    by_token: bool = False
    pass_through: int = 0
    with_shared: bool = False
    learned_scale: bool = False

    decisions = {"*": "router"}

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """Its score, and the groups that it chooses from."""
        groups = f", {fields['top_groups']} of {fields['groups']} groups" if fields["groups"] > 1 else ""
        return f"{fields['score']}{groups}"


class Expert(Ffn):
    """One of the routed experts."""

    decisions = {"d_ff": "expert_width"}


class Shared(Ffn):
    """Experts that every token uses. n: how many, as one network of n x d_ff. gate: a sigmoid per token. averaged: the
    mean of what they and the routed experts give, in place of the sum (Command A).
    """

    n: Count = 1
    gate: bool = False
    averaged: bool = False

    letters = {"d_ff": ("Fs", "width of the shared expert")}
    decisions = {"d_ff": "shared_experts", "n": "shared_experts", "gate": "shared_experts",
                 "averaged": "shared_experts"}  # fmt: skip
    words = {"d_ff": "width", "n": "number", "gate": "gate"}
    limits = {"n": 2}
    brief = "{n} of {d_ff:,}"

    def weighted(self, b: Builder, h: Tensor, ctx: Context) -> Tensor:
        """Each expert's activations times the weight that the router gives it, where it does."""
        weights = ctx.shared.pop(SHARED_WEIGHTS, ())
        return b.map("h_weighted", "mul_groups", h, *weights) if weights else h


class Beside(Ffn):
    """A dense network that every token passes beside the experts."""

    decisions = {"d_ff": "dense_beside"}


class ImageExpert(Ffn):
    """One of the experts that image tokens alone are routed to, by a router of their own."""

    decisions = {"*": "image_experts"}


class Moe(FfnSpec):
    """Routed experts, optionally with shared ones and with a dense network beside them (Grok-2, Arctic).

    capacity: rows of a sequence that one expert takes at most (Switch, arXiv:2101.03961 section 2.2); later tokens
    pass it by. So at most n_experts x capacity rows of a sequence are computed, and fewer where the router is
    uneven, which no count knows. Where experts choose, `capacity` is what each one takes; without it they take
    top_k rows per token between them (arXiv:2202.09368: top_k is the paper's capacity factor c).
    capacity_factor: that of training, by which a capacity follows from the length; recorded, without a cost.
    image_experts: as many experts again for image tokens (ERNIE 4.5 VL); they are held, and texts do not touch them.
    latent: width in which the routed experts work, between two projections that all tokens share (Nemotron 3);
    latent_norm: of what they give, before the second (Kimi K3).
    late: what the routed experts give is added behind the next layer, beside which they can run (LongCat).
    branch_norm: the `dense` network and the routed experts each have a norm before and behind, and the router sees the
    input as it is: a layer with `ffn_norm: false` (Gemma 4). output_norm: of what all of them give (A.X K1).
    """

    kind: Literal["moe"] = "moe"
    n_experts: Count
    top_k: Count
    expert: Expert
    shared: Shared | None = None
    dense: Beside | None = None
    image_experts: ImageExpert | None = None
    latent: Count | None = None
    latent_norm: Norm | None = None
    late: bool = False
    branch_norm: Norm | None = None
    output_norm: Norm | None = None
    router: Router = Field(default_factory=Router)
    capacity: Count | None = None
    capacity_factor: float | None = None

    about = {"moe": About("moe", "Mixture of experts",
                          paper="mixture of experts: Shazeer et al. 2017, arXiv:1701.06538, section 2")}  # fmt: skip
    words = {
        "latent": "",
        "latent_norm": "norm in the latent width",
        "branch_norm": "norms of the branches",
        "output_norm": "norm of the output",
    }
    letters = {"n_experts": ("E", "experts"), "top_k": ("k", "experts per token"), "latent": ("Dl", "width of experts")}
    decisions = {
        "n_experts": "expert_count", "top_k": "top_k", "expert": "experts", "shared": "shared_experts",
        "dense": "dense_beside", "image_experts": "image_experts", "latent": "latent_experts",
        "latent_norm": "norm_place", "late": "dense_beside",
        "branch_norm": "norm_place", "output_norm": "norm_place", "router": "router",
        "capacity": "capacity", "capacity_factor": "capacity",
    }  # fmt: skip
    absent = {
        "shared": None,
        "dense": None,
        "image_experts": None,
        "latent": None,
        "latent_norm": None,
        "branch_norm": None,
        "output_norm": None,
    }
    kind_decision = "experts"

    @property
    def networks(self) -> tuple[FfnSpec, ...]:
        """An expert, and what stands beside the experts."""
        return tuple(part for part in (self.expert, self.shared, self.dense) if part is not None)

    @property
    def experts(self) -> Experts:
        """What tokens are routed to."""
        shared = 0 if self.shared is None else self.shared.n
        return Experts(self.n_experts, self.top_k, shared, self.dense is not None)

    @property
    def label(self) -> str:
        """`256E+1/8act`: routed experts, those that every token uses, and how many are chosen."""
        shared = f"+{self.shared.n}" if self.shared is not None else ""
        return f"{self.n_experts}E{shared}/{self.top_k}act"

    def tiny_fields(self) -> Changes:
        """At most eight experts, two of them per token, in groups of at least two; as many pass through, if any do."""
        router, experts = self.router, min(self.n_experts, tiny.EXPERTS)
        top_k = min(self.top_k, 2, experts)
        if router.groups > 1:
            experts -= experts % 2
            groups = min(router.groups, max(experts // 2, 1))
            experts -= experts % groups
            best = min(router.top_groups, max(groups // 2, 1))
            router = router.model_copy(update={"groups": groups, "top_groups": best})
        if router.pass_through:
            router = router.model_copy(update={"pass_through": experts})
        return {"n_experts": experts, "top_k": top_k, "router": router}

    brief = "{n_experts:,} experts of {expert[d_ff]:,}, {top_k:,} per token"

    @classmethod
    def comparable_fields(cls, fields: Fields) -> Fields:
        """With other networks, one expert is: all but its width."""
        return {name: value for name, value in fields["expert"].items() if name != "d_ff"}

    @classmethod
    def fields_from(cls, other: Fields) -> Fields:
        """Another network as each of the experts, all but its width."""
        own = {name: value for name, value in other.items() if name not in ("kind", "d_ff")}
        return {"expert": own | {CLASS: Expert}} | cls.absent

    @model_validator(mode="after")
    def _enough_experts(self) -> Moe:
        if self.top_k > self.n_experts:
            raise InvalidBlock(f"top_k {self.top_k} is more than n_experts {self.n_experts}")
        if self.latent_norm is not None and self.latent is None:
            raise InvalidBlock("`latent_norm` stands in the width `latent`, which is not given")
        if self.router.with_shared and (self.shared is None or self.router.choice == "expert"):
            raise InvalidBlock("`with_shared` gives weights to `shared` experts, beside tokens that choose theirs")
        if self.late and self.dense is None:
            raise InvalidBlock("`late` experts stand beside a `dense` network, which the layer has instead")
        if self.router.pass_through and (self.capacity is not None or self.router.choice == "expert"):
            raise InvalidBlock("`pass_through` goes with tokens that choose, without a `capacity`")
        return self

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "moe") -> Tensor:
        """Tensor over T and D to tensor over T and D."""
        tokens, routed = ctx.step.tokens, self.rows(ctx.step)
        routed_to = self.n_experts + self.router.pass_through + self.sinks
        sizes: dict[str, Num] = {
            "Er": routed_to,
            "F": self.expert.d_ff,
            "Dl": self.latent or 0,
            "Sn": self.sinks,
            "One": 1,
        }
        with b.block(name), b.scope(E=self.n_experts, **sizes, Sc=2, M=routed):
            hit = expected_experts(self.n_experts, self.computed, tokens)
            with b.part("router"):
                weights = self._route(b, x, ctx)
            with b.part("experts"):
                y = self._normed(b, "experts", x, lambda h: self._experts(b, h, weights, hit))
                y = self._passed(b, x, y) if self.router.pass_through else y
            if self.late and self.dense is not None:
                ctx.shared[LATE] = (y,)
                with b.part("dense MLP"):
                    return self._beside(b, x, "dense", self.dense, ctx)
            if self.branch_norm is not None and self.dense is not None:
                dense = self.dense
                with b.part("dense MLP"):
                    beside = self._normed(b, "dense", x, lambda h: self._beside(b, h, "dense", dense, ctx))
                return b.map("branches", "add", y, beside)
            for name, spec, part in (("shared", self.shared, "shared experts"), ("dense", self.dense, "dense MLP")):
                if spec is not None:
                    with b.part(part):
                        y = self._joined(b, name, spec, y, self._beside(b, x, name, spec, ctx))
            if self.image_experts is not None:
                self._hold(b, self.image_experts)
            return y if self.output_norm is None else self.output_norm.lower(b, "output_norm", y)

    def _joined(self, b: Builder, name: str, spec: Ffn, y: Tensor, beside: Tensor) -> Tensor:
        """What the routed experts and a network beside them give, added or averaged."""
        if isinstance(spec, Shared) and spec.averaged:
            return b.map(name + "+", "add", y, beside, scale_sum=0.5)
        return b.map(name + "+", "add", y, beside)

    def _normed(self, b: Builder, name: str, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """A branch, between two norms where branches have norms."""
        if self.branch_norm is None:
            return branch(x)
        y = branch(self.branch_norm.lower(b, name + "_norm", x))
        return self.branch_norm.lower(b, name + "_post_norm", y)

    def _hold(self, b: Builder, expert: ImageExpert) -> None:
        """The experts of image tokens, and their router, which a step over texts does not touch."""
        with b.block("images", F=expert.d_ff):
            b.idle(b.weight("w_router", "D Er", "router", ("D",)))
            if self.router.selection_bias:
                role = "bias" if self.router.selection_bias == "parameter" else "buffer"
                b.idle(b.weight("selection_bias", "Er", role))
            for name, axes in (("gate", "D F"), ("up", "D F"), ("down", "F D")):
                if expert.gated or name != "gate":
                    b.idle(b.weight("w_" + name, "E " + axes, "expert", (axes.split()[0],)))

    @property
    def computed(self) -> Num:
        """Experts with weights that a token goes to, where it goes to all alike."""
        without = self.router.pass_through
        return experts_with_weights(self.n_experts, self.top_k, without) if without else self.top_k

    def _passed(self, b: Builder, x: Tensor, y: Tensor) -> Tensor:
        """With the shares of tokens that experts without weights give back."""
        with b.scope(One=1):
            share = b.map("passed_share", "passed_share", x, axes="T One")
        return b.map("with_passed", "add", y, b.map("passed", "mul", x, share))

    def rows(self, step: Step) -> Num:
        """(token, expert) pairs of a step, the extent of M."""
        if self.capacity is None:
            return step.tokens * self.computed
        wanted = self.n_experts if self.router.choice == "expert" else self.top_k
        most = self.n_experts * self.capacity
        return sum(s.batch * minimum(s.new * wanted, most) for s in step.seqs)

    @property
    def sinks(self) -> int:
        """Shared experts that the router weighs."""
        return self.shared.n if self.shared is not None and self.router.with_shared else 0

    def _route(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        """Chosen experts and their weights, over M."""
        r = self.router
        if r.input_norm is not None:
            x = r.input_norm.lower(b, "router_norm", x)
        logits = b.linear("router", x, "D Er", "T Er", bias="Er" if r.bias else False, role="router")
        role = "bias" if r.selection_bias == "parameter" else "buffer"
        chosen: tuple[Operand, ...] = (b.weight("selection_bias", "Er", role),) if r.selection_bias else ()
        scales = (b.weight("expert_scale", "Er", "scalar"),) if r.expert_scale else ()
        scales = (*scales, b.weight("scale", "One", "scalar")) if r.learned_scale else scales
        attrs = {"router": r, "top_k": self.top_k, "capacity": self.capacity, "sinks": self.sinks}
        if r.by_token:
            with b.scope(Tk=self.top_k, V=b.sizes["V"]):
                table = b.weight("experts_of_tokens", "V Tk", "buffer")
            chosen = (table.part(V=b.sizes["T"]),)
        weights = b.map("top_k", "topk", logits, *chosen, *scales, axes="M", **attrs)
        if self.sinks:
            ctx.shared[SHARED_WEIGHTS] = (b.map("shared_weights", "shared_weights", logits, axes="T Sn"),)
        return weights

    def _experts(self, b: Builder, x: Tensor, weights: Tensor, hit: Num) -> Tensor:
        d = "D" if self.latent is None else "Dl"
        if self.latent is not None:
            x = b.linear("latent_down", x, "D Dl", "T Dl", bias=self.expert.bias)
        rows = b.map(
            "dispatch", "dispatch", x, weights, axes=f"M {d}", scaled=self.router.input_scaled, top_k=self.top_k
        )
        gate = self._expert(b, "gate", rows, f"{d} F", hit) if self.expert.gated else None
        h = self.expert.activate(b, self._expert(b, "up", rows, f"{d} F", hit), gate)
        y = self._expert(b, "down", h, f"F {d}", hit)
        y = b.map(
            "combine", "combine", y, weights, axes=f"T {d}", scaled=not self.router.input_scaled, top_k=self.top_k
        )
        if self.latent is None:
            return y
        y = y if self.latent_norm is None else self.latent_norm.lower(b, "latent_norm", y, "Dl")
        return b.linear("latent_up", y, "Dl D", "T D", bias=self.expert.bias)

    def _expert(self, b: Builder, name: str, x: Tensor, axes: str, hit: Num) -> Tensor:
        inner, outer = axes.split()
        w = b.weight("w_" + name, "E " + axes, "expert", (inner,))
        y = b.contract(name, x, w.part(E=hit), "M " + outer, n_experts=self.n_experts, top_k=self.top_k)
        if not self.expert.bias:
            return y
        bias = b.weight("b_" + name, "E " + outer, "expert_bias")
        return b.map(name + "+b", "add", y, bias.part(E=hit))

    def _beside(self, b: Builder, x: Tensor, part: str, spec: Ffn, ctx: Context) -> Tensor:
        copies: dict[str, int] = {}
        if isinstance(spec, Shared) and spec.n != 1:
            copies = {"d_ff": spec.n * spec.d_ff}
        y = (spec.model_copy(update=copies) if copies else spec).lower(b, x, ctx, part)
        if isinstance(spec, Shared) and spec.gate:
            with b.scope(One=1):
                gate = b.linear("shared_gate", x, "D One", "T One")
            y = b.map("shared_gated", "gate", y, gate)
        return y
