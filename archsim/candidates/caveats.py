"""What is known about the price of a choice in quality, as data: `specs/quality/*.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Literal

from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Field
from archsim.blocks.dispatch import Spec
from archsim.spec import loader
from archsim.spec.catalog import data_roots

Line = Annotated[str, Field(min_length=1, max_length=400)]


class QualitySource(Spec):
    """Where it is from, and what it says there. sizes: of the models that were compared."""

    title: Line
    url: Line
    says: Line
    sizes: Line | None = None


class Caveat(Spec):
    """One choice. effect: its sign where that is known. loss_nats: its size where a source has one; it never enters a
    loss."""

    choice: Line
    text: Line
    effect: Literal["better", "worse", "near", "unknown"]
    loss_nats: float | None = None
    sources: tuple[QualitySource, ...]

    def to_dict(self, name: str) -> JsonObject:
        """As data."""
        return {
            "choice": name, "title": self.choice, "text": self.text, "effect": self.effect, "loss_nats": self.loss_nats,
            "sources": [source.url for source in self.sources],
        }  # fmt: skip


@cache
def load_caveats() -> Mapping[str, Caveat]:
    """All choices by name."""
    folder = data_roots("specs")[-1] / "quality"
    return {path.stem: loader.validate(loader.read(path), Caveat) for path in sorted(folder.glob("*.yaml"))}


def caveats(choices: Iterable[str]) -> list[JsonObject]:
    """What is known of some choices; a choice without a document says nothing."""
    known = load_caveats()
    return [known[name].to_dict(name) for name in choices if name in known]
