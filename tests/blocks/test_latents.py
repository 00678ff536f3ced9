"""Latents that sum up what an encoder gave: parameters, FLOPs and the vectors that leave, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.counts.images import one_image
from archsim.spec.tower import tokens_of
from tests.blocks.test_convolutions import IMAGE, PATCHES, counted, tower

SEEN, WIDTH = 6 * 5, 8
"""Patches of the image, and their width."""

HEADS: dict[str, Any] = {"kind": "mha", "n_heads": 2, "d_head": 3}
INNER = 2 * 3


def test_one_attention() -> None:
    """Keys of the patches, and of the latents where they are joined."""
    n = 4
    for joined in (False, True):
        keys = SEEN + n * joined
        work = 2 * (2 * n * WIDTH * INNER + 2 * keys * WIDTH * INNER + 2 * n * keys * INNER)
        stage = {"kind": "latents", "n": n, "attention": HEADS, "joined": joined}
        assert counted(stage) == (n * WIDTH + 4 * WIDTH * INNER, work)
        assert tokens_of(tower(PATCHES, stage), one_image((6, 5), 3)) == 3 * n


def test_layers_of_another_width() -> None:
    """Two layers of latents as wide as they are told: they see each other, then the patches."""
    n, d = 4, 10
    one = {"repeat": 2, "attention": HEADS | {"mask": {"kind": "bidirectional"}}, "cross_attention": HEADS,
           "norm": {"kind": "rmsnorm"}}  # fmt: skip
    stage = {"kind": "latents", "n": n, "d": d, "layers": [one], "norm": {"kind": "layernorm"}}
    own, across = 4 * d * INNER, 2 * d * INNER + 2 * WIDTH * INNER
    among = n * own + 2 * n * n * INNER
    beyond = 2 * n * d * INNER + 2 * SEEN * WIDTH * INNER + 2 * n * SEEN * INNER
    assert counted(stage) == (n * d + 2 * d + 2 * (own + across + 2 * d), 2 * 2 * (among + beyond))


def test_windows_are_summed_up_by_themselves() -> None:
    """The last window is filled up."""
    n, window = 2, 7
    windows = -(-SEEN // window)
    stage = {"kind": "latents", "n": n, "attention": HEADS, "window": window}
    rows, keys = windows * n, windows * window
    work = 2 * (2 * rows * WIDTH * INNER + 2 * keys * WIDTH * INNER + 2 * rows * window * INNER)
    assert counted(stage) == (n * WIDTH + 4 * WIDTH * INNER, work)
    assert tokens_of(tower(PATCHES, stage), IMAGE) == windows * n


@pytest.mark.parametrize("more", [{}, {"attention": HEADS, "layers": [{"cross_attention": HEADS}]}])
def test_either_layers_or_one_attention(more: dict[str, Any]) -> None:
    """One of the two."""
    with pytest.raises((SpecError, ValueError), match="either"):
        tower(PATCHES, {"kind": "latents", "n": 4, **more})
