"""What a forward pass is given: tokens, and sounds, pictures and boxes where a module needs them.

Which arguments a module takes is read off the signature of its `forward`; their shapes follow from the sizes in its
config. What a signature does not tell (which of two layouts, which optional argument is needed) is tried out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from typing import NamedTuple

import torch

from archsim.tracing.untyped import Untyped

TOKENS = ("input_ids", "tokens", "ids", "idx", "x", "inputs")
"""Names by which modules take their tokens; else the first argument of `forward`."""


class Sizes(NamedTuple):
    """Sequences, and new tokens of each."""

    batch: int
    new: int


Shape = Callable[[Sizes], tuple[int, ...]]


class Argument(NamedTuple):
    """An argument of `forward`: its name, its shape, and whether it holds whole numbers, as tokens and boxes do."""

    name: str
    shape: Shape
    whole: bool = True

    def tensor(self, sizes: Sizes, numbers: torch.dtype) -> torch.Tensor:
        """The argument, without data. numbers: the format of what is not whole."""
        return torch.zeros(self.shape(sizes), dtype=torch.long if self.whole else numbers, device="meta")


Arguments = tuple[Argument, ...]


def choices(signature: Mapping[str, inspect.Parameter], config: Untyped, both: bool) -> Iterator[Arguments]:
    """Arguments that a module may need, the plainest first: those that it cannot do without, then one more of those
    that it can. both: whether it takes tokens for an encoder and for a decoder.
    """
    first = next((name for name in TOKENS if name in signature), next(iter(signature), "input_ids"))
    starts = next(iter(signature), first)
    needed = [name for name, argument in signature.items() if _required(argument)]
    if starts in OTHERS and both:
        needed, first = [starts, *needed], ""
    names = dict.fromkeys([*([first] if first else []), *needed, *(["decoder_input_ids"] if both else [])])
    others = [name for name in signature if name in OTHERS and name not in names]
    for n in range(MOST_OTHERS + 1):
        for more in combinations(others, n):
            yield from _combined([*names, *more], config)


MOST_OTHERS = 2
"""Arguments that are tried beside those that a module cannot do without."""


def _required(argument: inspect.Parameter) -> bool:
    return argument.default is argument.empty and argument.kind in (
        argument.POSITIONAL_OR_KEYWORD,
        argument.KEYWORD_ONLY,
    )


def _combined(names: Untyped, config: Untyped) -> Iterator[Arguments]:
    """Every choice of a form for each argument."""
    forms = [[Argument(name, *form) for form in _forms(name, config)] for name in names]
    yield from product(*forms)


# ---------------------------------------------------------------------- forms of arguments
Form = tuple[Shape, bool]


def _forms(name: str, config: Untyped) -> list[Form]:
    """Shapes that an argument may have, and whether it holds whole numbers."""
    return OTHERS[name](config) if name in OTHERS and config is not None else _tokens(config)


def _tokens(config: Untyped) -> list[Form]:
    """A number for each token; or for each codebook of one."""
    found: list[Form] = [(lambda s: (s.batch, s.new), True)]
    books = (getattr(part, "num_channels", None) for part in parts(config) if hasattr(part, "vocab_size"))
    channels = next((n for n in books if isinstance(n, int)), None)
    if channels is not None:
        found.append((lambda s: (s.batch, s.new, channels), True))
    return found


def _features(config: Untyped) -> list[Form]:
    """Rows of a spectrogram, as many as the encoder makes a token of: rows first, or bins first."""
    bins, rows = _size(config, "num_mel_bins", "input_feat_per_channel"), _size(config, "subsampling_factor")
    if bins is None:
        return []
    if rows is None:  # a convolution of stride 2, and tokens that are joined behind it
        rows = 2 * (_size(config, "downsample_factor") or 1)
    return [(lambda s: (s.batch, rows * s.new, bins), False), (lambda s: (s.batch, bins, rows * s.new), False)]


def _waveform(config: Untyped) -> list[Form]:
    """Samples, as many as convolutions without padding make so many tokens of; or rows that have been embedded."""
    kernels, strides = _find(config, "conv_kernel"), _find(config, "conv_stride")
    if not isinstance(kernels, list | tuple) or not isinstance(strides, list | tuple):
        width = _size(config, "d_model", "hidden_size")
        return [*_tokens(config), *([(lambda s: (s.batch, s.new, width), False)] if width is not None else [])]

    def samples(sizes: Sizes) -> tuple[int, ...]:
        n = sizes.new
        for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
            n = (n - 1) * stride + kernel
        return sizes.batch, n

    return [(samples, False)]


def _picture(config: Untyped) -> list[Form]:
    """One picture of each sequence at the size of the config, alone or in a list."""
    side, channels = _find(config, "image_size"), _size(config, "num_channels", "in_channels") or 3
    height, width = side if isinstance(side, list | tuple) else (side, side)
    if not isinstance(height, int) or not isinstance(width, int):
        return []
    return [
        (lambda s: (s.batch, channels, height, width), False),
        (lambda s: (s.batch, 1, channels, height, width), False),
    ]


def _patches(config: Untyped) -> list[Form]:
    """Patches, each with its row and its column in front."""
    width = _size(config, "patch_embed_hidden_size")
    return [(lambda s: (s.batch, s.new, width + 2), False)] if width is not None else []


def _boxes(_: Untyped) -> list[Form]:
    """Four corners of each token, as whole numbers or as parts of the page."""
    return [(lambda s: (s.batch, s.new, 4), True), (lambda s: (s.batch, s.new, 4), False)]


def _seen(_: Untyped) -> list[Form]:
    """Which pictures each token sees."""
    return [(lambda s: (s.batch, s.new, 1), True)]


def _state(config: Untyped) -> list[Form]:
    """The joints of a robot."""
    width = _size(config, "max_state_dim")
    return [(lambda s: (s.batch, width), False)] if width is not None else _tokens(config)


OTHERS: Mapping[str, Callable[[Untyped], list[Form]]] = {
    "input_features": _features, "input_values": _waveform, "inputs": _waveform, "pixel_values": _picture,
    "flattened_patches": _patches, "bbox": _boxes, "state": _state,
    "image_attention_mask": _seen,
}  # fmt: skip
"""What arguments other than tokens are, by the names that they have throughout transformers."""


# ---------------------------------------------------------------------- values of configs
def parts(config: Untyped) -> list[Untyped]:
    """A config and those inside it."""
    inner = [value for value in vars(config).values() if hasattr(value, "model_type")] if config is not None else []
    return [config, *(each for value in inner for each in parts(value))] if config is not None else []


def _find(config: Untyped, *names: str) -> Untyped:
    """The first value under one of the names, in a config or one inside it."""
    held = (getattr(part, name, None) for part in parts(config) for name in names)
    return next((value for value in held if value is not None), None)


def _size(config: Untyped, *names: str) -> int | None:
    found = _find(config, *names)
    return found if isinstance(found, int) else None
