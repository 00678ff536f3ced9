"""What a spec says reaches the seconds: where the bound falls, the expected time falls as well."""

from __future__ import annotations

from itertools import pairwise

import pytest

from archsim.base.options import CountArguments
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model

HARDWARE = load_hardware("h100-sxm")

CHANGES = [
    ("deepseek-v3", "attention.kv_rank", (1024, 512, 256, 128, 64)),
    ("deepseek-v2", "attention.kv_rank", (1024, 512, 256, 128)),
    ("deepseek-v3", "attention.d_rope", (256, 128, 64, 32)),
    ("kimi-k2", "attention.d_rope", (256, 64, 16)),
    ("deepseek-v3", "attention.d_v", (256, 128, 64)),
    ("deepseek-v2", "attention.d_v", (256, 128, 64)),
    ("deepseek-v3", "attention.n_heads", (256, 128, 64, 32)),
    ("llama3.1-8b", "attention.n_kv_heads", (32, 16, 8)),
    ("llama3.1-70b", "attention.n_kv_heads", (64, 16, 8)),
    ("mistral-7b", "attention.mask.window", (8192, 4096, 1024, 256)),
    ("mixtral-8x7b", "ffn.expert.d_ff", (14336, 7168, 3584)),
    ("qwen3-30b-a3b", "ffn.expert.d_ff", (1536, 768, 384)),
    ("llama3.1-8b", "ffn.d_ff", (28672, 14336, 7168)),
    ("llama2-70b", "ffn.d_ff", (28672, 14336)),
    ("qwen3-235b-a22b", "ffn.expert.d_ff", (3072, 1536, 768)),
    ("kimi-k2.5", "attention.kv_rank", (1024, 512, 128)),
    ("deepseek-r1", "attention.kv_rank", (1024, 512, 128)),
    ("deepseek-v3.1", "attention.d_v", (256, 128, 64)),
    ("qwen3-8b", "attention.n_kv_heads", (32, 16, 8)),
    ("qwen3-32b", "attention.n_kv_heads", (64, 32, 8)),
    ("qwen3-14b", "attention.n_kv_heads", (40, 8)),
    ("qwen2.5-72b", "attention.n_kv_heads", (64, 16, 8)),
    ("mistral-large-2", "attention.n_kv_heads", (96, 48, 8)),
    ("llama3-70b", "attention.n_kv_heads", (64, 32, 8)),
    ("mamba-2.8b", "mixer.d_state", (64, 16, 8)),
    ("mamba-2.8b", "mixer.d_conv", (8, 4, 2)),
    ("qwen3-next-80b-a3b", "mixer.d_conv", (8, 4, 2)),
    ("mamba2-2.7b", "mixer.d_state", (256, 128, 64)),
    ("kimi-linear-48b-a3b", "mixer.n_heads", (64, 32, 16)),
    ("deepseek-v2", "attention.q_rank", (3072, 1536, 768)),
]
"""(model, field, values from the largest)."""

SHARE = 0.7
"""Least part of the bound's change that the expected time makes, where the bound falls by more than 5 %."""


def _times(name: str, field: str, value: int) -> list[tuple[float, float]]:
    found = estimate(
        load_model(name, [f"{field}={value}"]), HARDWARE, devices=8, tp=8 if "mamba" not in name else None,
        batch=64, input_len=8192, weights="fp8" if "deepseek" in name or "kimi" in name else None,
    )  # fmt: skip
    return [(p.ideal_s, p.expected_s) for p in (found.prefill, found.decode) if p is not None]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "field", "values"), CHANGES)
def test_expected_time_falls_with_the_bound(name: str, field: str, values: tuple[int, ...]) -> None:
    """Never flat where the bound falls by more than 5 %, and never against it."""
    runs = [_times(name, field, value) for value in values]
    for more, less in pairwise(runs):
        for (bound, expected), (lower, shorter) in zip(more, less, strict=True):
            if lower < 0.95 * bound:
                assert shorter < expected
            assert shorter <= expected * (1 + 1e-3) or lower > bound


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [{}, {"batch": 16, "input_len": 4096}, {"batch": 64, "input_len": 8192, "weights": "fp8"}],
    ids=["one request", "16 requests", "64 requests"],
)
def test_a_narrower_latent_is_faster(options: CountArguments) -> None:
    """DeepSeek-V3 on eight devices: of the change in the ideal time per token at least 70 % is expected."""
    models = [load_model("deepseek-v3", [f"attention.kv_rank={rank}"]) for rank in (1024, 512, 256, 128, 64)]
    steps = [found.decode for model in models if (found := estimate(model, HARDWARE, devices=8, **options))]
    times = [(step.ideal_s, step.expected_s) for step in steps if step is not None]
    assert len(times) == 5
    for (bound, expected), (lower, shorter) in pairwise(times):
        assert expected - shorter > SHARE * (bound - lower) > 0


def test_a_shape_that_no_table_holds_is_less_certain() -> None:
    """The fit of a latent of 512 stands for one of 256 with a wider interval, and says so."""
    own, other = (
        estimate(
            load_model("deepseek-v3", [f"attention.kv_rank={rank}"]), load_hardware("h200-sxm"), devices=8, tp=8,
            batch=64, input_len=8192, weights="fp8",
        ).decode
        for rank in (512, 256)
    )  # fmt: skip
    assert own is not None
    assert other is not None
    spans, evidence = [], []
    for phase in (own, other):
        part = next(part for part in phase.by_class if part.kernel_class == "mla_decode")
        spans.append(part.time.high / part.time.expected)
        evidence.append(part.time.evidence)
    assert spans[1] > spans[0]
    assert evidence[1] == "transferred"


def test_many_models_are_changed() -> None:
    """The property is held over twenty models."""
    assert len({name for name, _, _ in CHANGES}) >= 20
