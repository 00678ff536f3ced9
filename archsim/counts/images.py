"""Images of a request: how many tokens they take, and the step that their encoder runs."""

from __future__ import annotations

import re

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.number import Num
from archsim.counts.graph_counts import flops
from archsim.graph.graph import Block
from archsim.graph.step import Seqs, Step
from archsim.spec.model import Model, Tower

MOST_PIXELS = 1 << 20
"""Pixels of a side."""


@dataclass(frozen=True, slots=True)
class Images:
    """`count` images of one size in pixels, in each request."""

    width: int
    height: int
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Images:
        """From `1024x768` or, for several, `1024x768x4`: width, height, images. Raises UsageError."""
        match = re.fullmatch(r"(\d{1,7})[x×](\d{1,7})(?:[x×](\d{1,5}))?", text.strip().lower())
        sizes = [int(n or 1) for n in match.groups()] if match else [0]
        if not match or min(sizes) < 1 or max(sizes[:2]) > MOST_PIXELS:
            message = (
                f"`--image` is width x height in pixels, as in 1024x768, or 1024x768x4 for four, not {quote(text)}"
            )
            raise UsageError(message)
        return cls(sizes[0], sizes[1], sizes[2])


@dataclass(frozen=True, slots=True)
class ImageWork:
    """What the images of one request ask of the encoder: patches and tokens of each, in rows and columns of patches."""

    tower: Tower
    images: Images
    grid: tuple[int, int]
    tokens: int

    noun = "image"

    @classmethod
    def of(cls, model: Model, images: Images) -> ImageWork:
        """Raises UsageError for a model whose encoder, or whose processor's rule, is not known."""
        tower = next((t for t in model.towers if t.name == "vision" and t.stages and t.images is not None), None)
        if tower is None or tower.images is None:
            known = "vision" in model.tower_names
            why = "how its processor resizes them is not known" if known else "it has no vision encoder"
            raise UsageError(f"`--image`: {model.name} takes no images: {why}")
        from archsim.spec.tower import tokens_of  # few commands ask for images: cold start

        height, width = tower.images.resized(images.width, images.height)
        side = tower.patch_size
        grid = height // side, width // side
        tokens = tokens_of(tower, one_image(grid))
        if tower.images.row_end:
            tokens += height // tower.images.factor
        return cls(tower, images, grid, tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the images of a request add to its prompt."""
        return self.tokens * self.images.count

    def step(self, batch: Num = 1) -> Step:
        """The encoder's step for so many requests."""
        return one_image(self.grid, batch * self.images.count)

    def to_dict(self) -> JsonObject:
        """Sizes, and the FLOPs of the images of one request."""
        return {
            "size": [self.images.width, self.images.height], "images": self.images.count,
            "patches": self.grid[0] * self.grid[1], "tokens_per_image": self.tokens,
            "tokens": self.prompt_tokens, "flops": flops(self.graph()),
        }  # fmt: skip

    def graph(self, batch: Num = 1) -> Block:
        """The graph of the encoder."""
        from archsim.spec.tower import lower_tower

        return lower_tower(self.tower, self.step(batch))


def one_image(grid: tuple[int, int], count: Num = 1) -> Step:
    """A step of so many images of rows x columns of patches."""
    return Step(seqs=(Seqs(count, grid[0] * grid[1], 0),), grids=(grid,))
