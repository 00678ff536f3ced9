"""Encoders without attention: pieces of an image folded step by step, and codes of a spectrum that are looked up
(Inkling).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, combinations, pairwise
from math import ceil, log
from operator import mul
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.parts import linear, norm, patches, rmsnorm
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject


class Scale(NamedTuple):
    """What a piece is folded to: pictures and pixels on a side that one vector holds, and its width."""

    frames: int
    side: int
    width: int

    @property
    def size(self) -> int:
        """Pixels of one vector."""
        return self.frames * self.side**2


def scales(frames: int, side: int, channels: int, n: int) -> list[Scale]:
    """The n + 1 scales of n layers, by prime factors and near to equal ratios, as `plan_out_scales` of transformers'
    `modeling_inkling.py` plans them: each of the possible scales once where there are more of them than layers.
    """
    sides, times = (list(accumulate(prime_factors(whole)[::-1], mul)) for whole in (side, frames))
    possible = [
        Scale(1, 1, channels),
        *(Scale(1, s, ceil(s * s * channels / 64) * 64) for s in sides),
        *(Scale(t, side, side * side * channels * t * 64) for t in times),
    ]
    ideal = [log(side * side * frames * channels) * i / n for i in range(n + 1)]

    def off(i: int, scale: Scale) -> float:
        return abs(ideal[i] - log(scale.size))

    if n < len(possible):
        chosen: Sequence[Scale] = min(
            combinations(possible, n + 1), key=lambda found: sum(off(i, s) for i, s in enumerate(found))
        )
    else:
        chosen = [min(possible, key=partial(off, i)) for i in range(n + 1)]
    return [possible[0], *chosen[1:-1], possible[-1]]


def prime_factors(n: int) -> list[int]:
    """Of a whole number, smallest first."""
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, *([n] if n > 1 else [])]


# InklingVisionConfig
@encoder("vision", "inkling_mm_model", text_hidden_size=6144, patch_size=40, temporal_patch_size=2, num_channels=3,
         num_hidden_layers=24)  # fmt: skip
def inkling(c: Config, around: Around) -> list[Doc]:
    """Inkling: neighbours are folded into one vector by layer after layer, then the two pictures of a piece."""
    c.only("vision_encoder_type", "hmlp")
    c.only("use_vision_norm", True)
    c.skip("hidden_size", "num_attention_heads", "rms_norm_eps", "num_key_value_heads")
    out, frames = c.count("text_hidden_size", "decoder_dmodel"), c.count("temporal_patch_size")
    channels, n = c.count("num_channels", "n_channels"), c.count("num_hidden_layers", "n_layers")
    plan = scales(frames, c.count("patch_size"), channels, n)
    found: list[Doc] = []
    for i, (small, large) in enumerate(pairwise(plan)):
        last = i == n - 1
        width, tokens = out if last else large.width, large.size // small.size
        if not found:
            found.append(patches(width, large.side, channels=channels, bias=False) | {"copies": frames})
        else:
            found += [{"kind": "merge", "tokens": tokens}] if tokens > 1 else []
            found.append(linear(width, bias=False))
        found += [] if last else [norm(rmsnorm()) | {"activation": "gelu"}]
    return [*found, norm(rmsnorm(), name="last_norm")]


# InklingAudioConfig
@encoder("audio", "inkling_mm_model", n_mel_bins=80, mel_vocab_size=256, text_hidden_size=6144)
def inkling_audio(c: Config, around: Around) -> list[Doc]:
    """Inkling: the level of every mel bin is a code, and the vectors of these are added up."""
    c.only("audio_mode", "dmel")
    c.only("use_audio_norm", True)
    c.only("bias", False)
    c.skip("dmel_min_value", "dmel_max_value", "rms_norm_eps")
    d = c.count("text_hidden_size", "decoder_dmodel")
    return [{"kind": "codes", "d": d, "n": c.count("n_mel_bins"), "rows": c.count("mel_vocab_size")}, norm(rmsnorm())]
