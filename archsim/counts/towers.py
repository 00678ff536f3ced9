"""What a checkpoint holds beside the language model: vision and audio towers, of some only the size is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from archsim.base.diagnostics import quote, shorten
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.base.number import ceil_div
from archsim.base.units import format_bytes
from archsim.blocks.dispatch import Spec
from archsim.blocks.layer import count_layers
from archsim.blocks.stage import ConvStage, LayersStage, PatchesStage, StageSpec
from archsim.counts.formats import Formats
from archsim.counts.graph_counts import params
from archsim.graph.step import Step
from archsim.spec.model import Model, Tower

SHOWN = 12
"""Keys that a note lists."""

ONE = Step.of(1, 64)
"""A step that any encoder can run: parameters are the same in all."""


NAMES = ("vision", "audio")


def checked_towers(names: str | Collection[str]) -> tuple[str, ...]:
    """Towers of `--without`, a list or comma-separated. Raises UsageError for another name."""
    given = names.split(",") if isinstance(names, str) else names
    asked = [name.strip().lower() for name in given if name.strip()]
    for name in asked:
        if name not in NAMES:
            raise UsageError(f"no tower {quote(name)}", hints=(f"known: {', '.join(NAMES)}",))
    return tuple(asked)


def tower_size(tower: Tower) -> int | None:
    """Parameters of a tower; None where the number is not known."""
    if not tower.stages:
        return tower.params
    from archsim.spec.tower import lower_tower  # most models have no towers: cold start

    return int(params(lower_tower(tower, ONE)))


def tower_params(model: Model) -> dict[str, int | None]:
    """Parameters of what the checkpoint holds beside the language model; None where the number is not known."""
    return {tower.name: tower_size(tower) for tower in model.towers}


def counted_towers(model: Model, parts: Collection[str]) -> dict[str, int]:
    """Parameters of the towers that are asked for. Raises UsageError for one whose size is not known."""
    found: dict[str, int] = {}
    for name, size in tower_params(model).items():
        if name in parts:
            if size is None:
                hint = "the checkpoint's model.safetensors.index.json says it: give that file in place of the config"
                raise UsageError(f"the size of the {name} tower of {model.name} is not known", hints=(hint,))
            found[name] = size
    return found


def loaded_towers(model: Model, parts: Collection[str], without: Collection[str], usual: bool) -> tuple[Tower, ...]:
    """The towers that an engine holds in memory. parts: those asked for. without: those left out. usual: whether the
    engine loads the others, of which the size must be known. Raises UsageError for one that is asked for and whose size
    is not known.
    """
    asked = counted_towers(model, parts)
    return tuple(
        tower
        for tower in model.towers
        if tower.name not in without and (tower.name in asked or (usual and tower_size(tower) is not None))
    )


def tower_bytes_per_device(tower: Tower, formats: Formats, tp: int) -> int:
    """Bytes of a tower's weights on each of the devices that share it."""
    return int(ceil_div(tower_bytes(tower, formats), tower_tp(tower, tp)))


def tower_bytes(tower: Tower, formats: Formats) -> int:
    """Bytes of a tower's weights; 0 where their number is not known."""
    return formats.tower_bytes(tower_size(tower) or 0, tower.format)


def tower_tp(tower: Tower, tp: int) -> int:
    """Devices that share a tower: those of the plan where they divide the heads of each of its attentions, else each
    holds it whole.
    """
    return tp if all(n % tp == 0 for n in _heads(tower.stages)) else 1


def _heads(part: object) -> Iterator[int]:
    """Heads of every attention in a part of a tower, in whatever stage or layer it stands."""
    if isinstance(part, Spec):
        if (n := getattr(part, "n_heads", None)) is not None:
            yield n
        part = tuple(getattr(part, name) for name in part.all_fields)
    if isinstance(part, tuple):
        for inside in part:
            yield from _heads(inside)


def _walk(stages: Iterable[StageSpec]) -> Iterator[StageSpec]:
    """Stages, and those inside of them that the stream goes through."""
    for stage in stages:
        yield stage
        yield from _walk(stage.along)


def tower_depth(tower: Tower) -> tuple[int, int]:
    """Layers of a tower, and their width; of an opaque one those of the ViT-L/14 that most had."""
    stacks = [stage for stage in _walk(tower.stages) if isinstance(stage, LayersStage)]
    first = next((stage for stage in _walk(tower.stages) if isinstance(stage, PatchesStage | ConvStage)), None)
    if not stacks or first is None:
        return 24, 1024
    return sum(count_layers(stage.layers) for stage in stacks), int(first.d)


def towers_in_memory(
    model: Model, formats: Formats, loaded: Collection[Tower], without: Collection[str] = ()
) -> tuple[Note, ...]:
    """Says which towers the memory holds and which it does not, and which keys of the config no figure depends on."""
    notes: list[Note] = []
    if loaded:
        sizes = " and ".join(f"the {t.name} tower ({format_bytes(tower_bytes(t, formats))})" for t in loaded)
        names = ",".join(t.name for t in loaded)
        notes.append(
            Note(
                "A27",
                f"weights in memory include {sizes}, as the engine loads them; `--without {names}` leaves them out",
            )
        )
    left = [tower for tower in model.towers if tower.name not in {t.name for t in loaded}]
    if left:
        words = " and ".join(_left_words(tower, formats, tower.name in without) for tower in left)
        notes.append(Note("A29", f"memory leaves out {words}"))
    return (*notes, *unused_keys(model))


def _left_words(tower: Tower, formats: Formats, unwanted: bool) -> str:
    size = tower_size(tower)
    if size is None:
        return f"the {tower.name} tower, whose size is not known" + (f" ({tower.note})" if tower.note else "")
    why = "`--without`" if unwanted else f"in a file of its own, which `fit --with {tower.name}` counts"
    return f"the {tower.name} tower ({format_bytes(tower_bytes(tower, formats))}; {why})"


def text_part_only(model: Model, formats: Formats, parts: Collection[str] = ()) -> tuple[Note, ...]:
    """Says that the checkpoint holds more than what is counted, and which keys of its config no figure depends on."""
    left = [tower for tower in model.towers if tower.name not in parts]
    if not left:
        return unused_keys(model)
    words = " and ".join(_words(tower, formats) for tower in left)
    held = "which is" if len(left) == 1 else "which are"
    left_out = Note("A29", f"text part only: the checkpoint holds more, {words}, {held} not counted")
    return (left_out, *unused_keys(model))


def unused_keys(model: Model) -> tuple[Note, ...]:
    """Says how a config of an unknown type was read, and which keys of a config were left aside; nothing where there
    are none.
    """
    read_as = () if model.read_as is None else (Note("A54", model.read_as),)
    if not model.unused:
        return read_as
    shown = [shorten(key, 60) for key in model.unused[:SHOWN]]
    more = f" and {len(model.unused) - SHOWN} more" if len(model.unused) > SHOWN else ""
    return (*read_as, Note("A36", f"ignored in the config, since no figure depends on them: {', '.join(shown)}{more}"))


def towers_to_dict(model: Model, formats: Formats, parts: Collection[str]) -> JsonObject:
    """Parameters and bytes of each tower, None where not known, and whether they are counted."""
    return {
        tower.name: {
            "params": size, "bytes": None if size is None else tower_bytes(tower, formats),
            "counted": tower.name in parts,
        }
        for tower in model.towers
        for size in (tower_size(tower),)
    }  # fmt: skip


def _words(tower: Tower, formats: Formats) -> str:
    name, held = tower.name, tower_size(tower)
    article = "an" if name[0] in "aeiou" else "a"
    if held is None:
        return f"{article} {name} tower of unknown size" + (f" ({tower.note})" if tower.note else "")
    size = format_bytes(tower_bytes(tower, formats))
    return f"{article} {name} tower of {held:,} parameters ({size}; `--with {name}` counts it)"
