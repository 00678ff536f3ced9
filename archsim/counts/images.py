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
from archsim.spec.tiles import Size

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
    """What the images of one request ask of the encoder. pictures: of each image, as (how many, rows and columns of
    patches): one, or the tiles that it is cut into. tokens: of each image.
    """

    tower: Tower
    images: Images
    pictures: tuple[tuple[int, tuple[int, int]], ...]
    tokens: int

    noun = "image"

    @classmethod
    def of(cls, model: Model, images: Images) -> ImageWork:
        """Raises UsageError for a model whose encoder, or whose processor's rule, is not known."""
        tower = next((t for t in model.towers if t.name == "vision" and t.stages and t.images is not None), None)
        if tower is None or tower.images is None:
            raise UsageError(f"`--image`: {model.name} takes no images: {_why(model)}")
        from archsim.spec.tower import tokens_of  # few commands ask for images: cold start

        side, rule = tower.patch_size, tower.images.of_several(images.count)
        sizes = rule.pictures(images.width, images.height)
        pictures = tuple((n, (height // side, width // side)) for n, (height, width) in sizes)
        if not all(min(grid) for _, grid in pictures):
            size = f"{images.width}x{images.height}, whose sides are too unequal"
            raise UsageError(f"`--image`: the processor of {model.name} leaves less than a patch of {size}")

        def vectors(size: Size) -> int:
            return tokens_of(tower, one_image((size[0] // side, size[1] // side)))

        return cls(tower, images, pictures, rule.tokens(images.width, images.height, vectors))

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the images of a request add to its prompt."""
        return self.tokens * self.images.count

    @property
    def patches(self) -> int:
        """Patches of one image, in all its pictures."""
        return sum(n * rows * columns for n, (rows, columns) in self.pictures)

    @property
    def count(self) -> int:
        """Images of a request."""
        return self.images.count

    def step(self, batch: Num = 1) -> Step:
        """The encoder's step for so many requests."""
        return self.step_of(batch * self.images.count)

    def step_of(self, count: Num) -> Step:
        """The encoder's step for so many images."""
        return pictures_step(self.pictures, count)

    def to_dict(self) -> JsonObject:
        """Sizes, and the FLOPs of the images of one request."""
        return {
            "size": [self.images.width, self.images.height], "images": self.images.count,
            "pictures": sum(n for n, _ in self.pictures), "patches": self.patches, "tokens_per_image": self.tokens,
            "tokens": self.prompt_tokens, "flops": flops(self.graph()),
        }  # fmt: skip

    def graph(self, batch: Num = 1) -> Block:
        """The graph of the encoder."""
        from archsim.spec.tower import lower_tower

        return lower_tower(self.tower, self.step(batch))


def _why(model: Model) -> str:
    """Why no tokens of images can be added to a prompt."""
    if "vision" not in model.tower_names:
        return "it has no vision encoder"
    tower = next(t for t in model.towers if t.name == "vision")
    return "how its processor resizes them is not known" if tower.stages else "its encoder is not described"


def one_image(grid: tuple[int, int], count: Num = 1) -> Step:
    """A step of so many images of rows x columns of patches."""
    return pictures_step(((1, grid),), count)


def pictures_step(pictures: tuple[tuple[int, tuple[int, int]], ...], count: Num = 1) -> Step:
    """A step of so many images, each of which is so many pictures of rows x columns of patches."""
    seqs = tuple(Seqs(count * n, rows * columns, 0) for n, (rows, columns) in pictures)
    return Step(seqs=seqs, grids=tuple(grid for _, grid in pictures))
