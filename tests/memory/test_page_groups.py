"""Pages of equal size for layers that keep caches in several ways: the rules of vLLM 0.33 (v1/core/kv_cache_planning.py
and v1/kv_cache_interface.py of its wheel), worked out by hand for published models.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

import archsim
from archsim.graph.tensor import BF16, Tensor
from archsim.memory.kv_cache import LONGEST, Paging
from archsim.memory.tensors import PipelineStage, TensorCopies
from archsim.spec.engine import PageGroups

CHUNK = 8192


def fit(model: str, length: int, engine: str = "vllm@0.33", **options: Any) -> Any:
    common: dict[str, Any] = {"max_num_batched_tokens": CHUNK, "suggest": False}
    return archsim.fit(model, "b300", engine=engine, max_model_len=length, **common, **options)


@pytest.mark.parametrize(
    ("model", "window", "full", "windowed", "size", "token"),
    [
        ("gemma3-27b", 1024, 10, 52, 10, 2 * 16 * 128 * 2),
        ("gemma3-4b", 1024, 5, 29, 5, 2 * 4 * 256 * 2),
        ("gpt-oss-20b", 128, 12, 12, 12, 2 * 8 * 64 * 2),
    ],
)
@pytest.mark.parametrize("length", [4096, 131072])
def test_windows(model: str, window: int, full: int, windowed: int, size: int, token: int, length: int) -> None:
    """Groups as large as the kind with fewest layers; a window less one token, two steps and one page more."""
    pages_full = ceil(length / 16)
    pages_window = ceil(min(window - 1 + 2 * CHUNK, length) / 16) + 1
    pages = ceil(full / size) * pages_full + ceil(windowed / size) * pages_window
    answer = fit(model, length)
    assert answer.request_bytes == size * 16 * token * pages
    assert answer.kv_tokens == int(answer.budget.room / answer.request_bytes * length)


@pytest.mark.parametrize(
    ("model", "attention", "recurrent", "token", "state", "block"),
    [
        ("qwen3-next-80b-a3b", 12, 36, 2 * 2 * 256 * 2, 8192 * 3 * 2 + 32 * 128 * 128 * 4, 1056),
        ("jamba-52b", 4, 28, 2 * 8 * 128 * 2, 8192 * 3 * 2 + 8192 * 16 * 4, 144),
    ],
)
@pytest.mark.parametrize("length", [4096, 65536])
def test_states(model: str, attention: int, recurrent: int, token: int, state: int, block: int, length: int) -> None:
    """Pages grow to the multiple of 16 tokens that holds a state; a request has two states in each group."""
    assert block == 16 * ceil(state / (16 * token))
    pages = ceil(length / block) + ceil(recurrent / attention) * 2
    assert fit(model, length).request_bytes == attention * block * token * pages


def stage(*layers: tuple[int, int]) -> PipelineStage:
    """Layers that keep so many tokens, of 256 bytes each."""
    caches = [
        TensorCopies(Tensor(name=f"l{kept}.k_cache", axes={"C": kept, "H": 128}, format=BF16, kind="state"), n)
        for n, kept in layers
    ]
    return PipelineStage(weights=0, caches=tuple(caches))


@pytest.mark.parametrize(("full", "windowed", "slots"), [(13, 12, 26), (10, 14, 28), (10, 15, 30), (10, 52, 70)])
def test_sizes_of_groups(full: int, windowed: int, slots: int) -> None:
    """Kinds with nearly as many layers make groups of the larger number, others of the smaller."""
    paging = Paging(block=16, windows="chunk", chunk=10**6, groups=PageGroups(steps=1))
    one = stage((full, LONGEST), (windowed, 512))
    whole, plain = (one.request_bytes(16 * 1000, way) for way in (paging, paging.alone))
    assert plain == (full + windowed) * 16_000 * 256
    assert abs(whole / (256 * 16_000) - slots) < 0.1  # the page that a window begins in


def test_running_requests_keep_one_step() -> None:
    """What a start sets aside for a window is of two steps; requests of the steady state keep that of one."""
    paging = Paging(block=16, windows="chunk", chunk=CHUNK, groups=PageGroups(steps=2, states=2))
    one = stage((10, LONGEST), (10, 1024))
    more = one.request_bytes(131072, paging) - one.request_bytes(131072, paging.running)
    assert more == 10 * CHUNK * 256


@pytest.mark.parametrize("model", ["gemma3-27b", "qwen3-next-80b-a3b"])
def test_older_versions(model: str) -> None:
    """Each layer by itself before 0.33; and models whose layers are alike are the same at both."""
    assert fit(model, 65536, "vllm@0.32").request_bytes < fit(model, 65536).request_bytes
    assert fit("llama3.1-8b", 65536).request_bytes == fit("llama3.1-8b", 65536, "vllm@0.32").request_bytes
