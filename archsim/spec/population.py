"""Many candidates of one structure as a single spec, whose numbers are columns: counts and times of all come at once.

The same blocks, graphs and time models as of any spec: each reads an array where it else reads a number.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import cast

from archsim.base.data_class import dataclass
from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import LazyModel
from archsim.base.number import Num
from archsim.spec.load import model_from
from archsim.spec.model import Model


@dataclass(frozen=True)
class Population:
    """Candidates that differ in numbers alone. document: a spec, as of a YAML file. columns: by path in it, as in
    ``layers.0.attention.n_heads``; all of one length.
    """

    document: JsonObject
    columns: Mapping[str, Num]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def model(self) -> Model:
        """The spec with columns for numbers. Candidates are not validated: whoever makes them keeps to the rules of
        their blocks, and `at` checks one."""
        found = model_from(self.document_of(0))
        for path, column in self.columns.items():
            found = cast(Model, with_field(found, path.split("."), column))
        return found

    def at(self, index: int) -> Model:
        """One candidate, validated. Raises SpecError."""
        return model_from(self.document_of(index))

    def document_of(self, index: int) -> JsonObject:
        """The spec of one candidate, as of a YAML file."""
        document = copy.deepcopy(self.document)
        for path, column in self.columns.items():
            *way, last = path.split(".")
            holder = cast("dict[object, object]", document)
            for key in way:
                holder = cast("dict[object, object]", holder[int(key) if key.isdecimal() else key])
            holder[last] = int(column[index])
        return document

    def of(self, chosen: Num) -> Population:
        """Some of the candidates: at the positions, or where the mask holds."""
        return Population(self.document, {path: column[chosen] for path, column in self.columns.items()})


def with_field(holder: object, path: Sequence[str], value: object) -> object:
    """A document, or a part of one, with one field set and not validated. path: keys, and positions in lists."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(holder, tuple):
        place = int(key)
        return (*holder[:place], with_field(holder[place], rest, value), *holder[place + 1 :])
    assert isinstance(holder, LazyModel)
    return holder.model_copy(update={key: with_field(getattr(holder, key), rest, value)})
