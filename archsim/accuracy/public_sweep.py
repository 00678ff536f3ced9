"""How the servers of the public sweep (InferenceMAX, later InferenceX) were launched, which its tables do not say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from archsim.accuracy.question import Run, device_of, model_of
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping
from archsim.base.version import version_of
from archsim.engines.names import engine_and_version
from archsim.engines.overhead import ServerFlags

SPREAD = ((1024, 1024), (1024, 8192), (8192, 1024))
"""Nominal lengths of the sweep, whose harness sends each between 0.8 and 1 of them."""

MEAN_OF_SPREAD = 0.9
"""Mean length over the nominal one where lengths are spread evenly between 0.8 and 1 of it."""

READ_AS = (
    "points of 1,024 or 8,192 tokens are read as InferenceMAX's: lengths between 0.8 and 1 of these, and what its "
    "scripts tell servers; a column `origin` with a file in a folder says otherwise"
)
"""What a reader has to know of points that are taken for those of the sweep."""

LAUNCHES = Path(__file__).with_name("public_sweep.yaml")


class Launch(NamedTuple):
    """What a launch script of the sweep says. engine, model: by their names in the catalog; family: of the device's
    architecture. isl, osl: nominal lengths, 0: any. devices_below: of the server; 0: any. before: versions older than
    this one alone; empty: any. kv, weights: formats, empty: as without the script. captured, whole_graph, wait_steps,
    host, all_reduce: as of `ServerFlags`. script: file and commit.
    """

    engine: str
    family: str
    model: str
    isl: int = 0
    osl: int = 0
    devices_below: int = 0
    kv: str = ""
    weights: str = ""
    captured: int | None = None
    whole_graph: bool = False
    wait_steps: int = 0
    host: str = ""
    all_reduce: JsonMapping | None = None
    before: str = ""
    script: str = ""

    def is_of(self, run: Run, model: str, family: str) -> bool:
        """Whether the script launched a run, whose lengths are nominal."""
        return (
            (self.engine, self.family, self.model) == (engine_and_version(run.engine)[0], family, model)
            and self.isl in (0, run.isl)
            and self.osl in (0, run.osl)
            and not 0 < self.devices_below <= run.devices
            and (not self.before or is_older(engine_and_version(run.engine)[1], self.before))
        )

    def server_flags(self, flags: ServerFlags) -> ServerFlags:
        """Flags with those of the script."""
        fused = self.all_reduce
        return ServerFlags(
            flags.captured if self.captured is None else self.captured,
            self.whole_graph or flags.whole_graph,
            self.wait_steps or flags.wait_steps,
            self.host or flags.host,
            (fused["kernels"], tuple(fused["up_to_mib"].items())) if fused else flags.all_reduce,
        )


def is_older(version: str, other: str) -> bool:
    """Whether a version comes before another; the newest, which is not named, does not."""
    found, than = version_of(version), version_of(other)
    return found is not None and than is not None and found < than


def is_of_sweep(isl: int, osl: int, origin: str) -> bool:
    """Whether a point is of the sweep: by its lengths, unless its origin is a file of an engine's own sweep, which lies
    in a folder by device and version.
    """
    return (isl, osl) in SPREAD and "/" not in origin


def day_of(engine: str, day: str) -> str:
    """The day of a point where the sweep's images of an engine are releases, which it then tells; else empty."""
    return day if engine in document()["released"] else ""


def as_launched(run: Run) -> Run:
    """A point of the sweep at the mean of its lengths, with what its launch scripts say where the row says nothing."""
    assert run.isl and run.osl
    isl, osl = round(MEAN_OF_SPREAD * run.isl), round(MEAN_OF_SPREAD * run.osl)
    found = replace(run, isl=isl, osl=osl, one_length=False, notes=(*run.notes, READ_AS))
    try:
        model, family = model_of(run.model)[0].name, device_of(run.device).arch.family
    except ArchsimError:  # refused where it is predicted
        return found
    for launch in launches():
        if launch.is_of(run, model, family):
            weights = launch.weights or found.weights
            found = replace(
                found, kv=found.kv or launch.kv or None, weights=weights, flags=launch.server_flags(found.flags)
            )
    return found


@cache
def launches() -> tuple[Launch, ...]:
    """All that is known of the sweep's launch scripts."""
    return tuple(Launch(**entry) for entry in document()["launches"])


@cache
def document() -> JsonMapping:
    """What is known of the sweep's scripts, as it stands in the file."""
    import yaml

    found: JsonMapping = yaml.safe_load(LAUNCHES.read_text("utf-8"))
    return found
