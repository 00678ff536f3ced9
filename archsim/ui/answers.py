"""The numbers of the page: those of `archsim estimate` for each candidate, kept while nothing changes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, cast

from archsim import api
from archsim.base.data_class import dataclass
from archsim.base.errors import ArchsimError, InternalError
from archsim.predict.context_curve import contexts_of, decode_times
from archsim.predict.estimate import Estimate
from archsim.render.command_line import command_line
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware, load_model
from archsim.spec.model import Model
from archsim.timing.step_time import StepTime
from archsim.ui.state import Candidate, Load, State
from archsim.ui.uploads import Uploads, check_layers

if TYPE_CHECKING:
    from archsim.base.options import EstimateOptions

V = TypeVar("V")
MOST_KEPT = 128
"""Answers that are kept; the one that was not asked for longest goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a candidate comes to: an estimate, or the error that stands in its place."""

    candidate: Candidate
    load: Load
    model: Model | None
    estimate: Estimate | None
    error: ArchsimError | None = None

    @property
    def name(self) -> str:
        """The model's name as the page shows it."""
        return self.model.name if self.model is not None else self.candidate.model

    @property
    def label(self) -> str:
        """`llama3.1-8b on 2 × h100-sxm`."""
        devices = self.estimate.plan.devices if self.estimate is not None else self.candidate.devices
        return f"{self.name} on {f'{devices} × ' if devices else ''}{self.candidate.hw}"


class Kept(Generic[V]):
    """Values by key, at most so many. Safe for several threads; two may compute one value at once."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most, self._lock = most, Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            self._values[key] = made
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return made


class RunOptions(TypedDict):
    """How a load is run."""

    requests: int
    replications: int
    expected_only: bool


class ServerOptions(TypedDict):
    """What serves a load."""

    devices: int | str
    weights: str | None
    kv_cache_dtype: str | None
    engine: str
    tp: int | None


class Answers:
    """Answers of one server. Models and devices are loaded once; an estimate is made again only where its candidate or
    its load has changed.
    """

    def __init__(self, uploads: Uploads) -> None:
        self.uploads = uploads
        self._models: Kept[Model] = Kept(64)
        self._devices: Kept[Hardware] = Kept(256)
        self._answers: Kept[Answer] = Kept()
        self._curves: Kept[tuple[tuple[int, ...], tuple[StepTime, ...]]] = Kept(64)

    def of(self, state: State) -> tuple[Answer, ...]:
        """The answer of each candidate."""
        return tuple(self.answer(candidate, state.load) for candidate in state.candidates)

    def answer(self, candidate: Candidate, load: Load) -> Answer:
        """The answer of one candidate."""
        key = (candidate, tuple(sorted(options_of(candidate, load).items())))
        return self._answers.get(key, lambda: self._made(candidate, load))

    def model(self, key: str, changes: tuple[str, ...] = ()) -> Model:
        """A model of the catalog or an upload, with fields changed. Raises ArchsimError."""
        upload = self.uploads.get(key)
        if upload is not None and not changes:
            return upload.model
        made = self._models.get(
            (key, changes), lambda: upload.changed(changes) if upload is not None else load_model(key, changes)
        )
        check_layers(made)
        return made

    def device(self, name: str) -> Hardware:
        """A device of the catalog. Raises ArchsimError."""
        return self._devices.get(name, lambda: load_hardware(name))

    def curve(self, answer: Answer) -> tuple[tuple[int, ...], tuple[StepTime, ...]]:
        """Contexts and the decode step at each, for the batch that the answer runs."""
        made = answer.estimate
        if made is None:
            return (), ()
        contexts = contexts_of(made)
        key = (answer.candidate, made.plan, made.workload.batch, contexts[-1])
        return self._curves.get(key, lambda: (contexts, decode_times(made, contexts)))

    def _made(self, candidate: Candidate, load: Load) -> Answer:
        model: Model | None = None
        try:
            model = self.model(candidate.model, candidate.changes)
            made = api.estimate(model, self.device(candidate.hw), **options_of(candidate, load))
        except ArchsimError as error:
            return Answer(candidate=candidate, load=load, model=model, estimate=None, error=error)
        except Exception as error:  # a defect must not end the page: it is said where the numbers would be
            defect = InternalError(f"internal error: {type(error).__name__}", hints=("please report the link",))
            return Answer(candidate=candidate, load=load, model=model, estimate=None, error=defect)
        return Answer(candidate=candidate, load=load, model=model, estimate=made)


def options_of(candidate: Candidate, load: Load) -> EstimateOptions:
    """The options of `archsim estimate` for a candidate under a load. Under a rate it is one request by itself: what
    the requests see of each other is simulated (`load_panel`).
    """
    given: dict[str, object] = {
        **server_options(candidate), "input_len": load.input_len, "output_len": load.output_len,
        "batch": load.batch if load.mode == "batch" else 1,
        "concurrency": load.concurrency if load.mode == "concurrency" else None,
        "price": candidate.price if load.mode != "rate" and candidate.price else None,
    }  # fmt: skip
    return cast("EstimateOptions", {name: value for name, value in given.items() if value is not None})


RUN: RunOptions = {"requests": 400, "replications": 1, "expected_only": True}
"""How long a load is simulated for the page."""


def server_options(candidate: Candidate) -> ServerOptions:
    """The options of `archsim simulate` that say what serves."""
    return {
        "devices": candidate.devices or "auto", "weights": candidate.weights or None,
        "kv_cache_dtype": candidate.kv_cache_dtype or None, "engine": candidate.engine, "tp": candidate.tp,
    }  # fmt: skip


def command_of(candidate: Candidate, load: Load, file: str | None = None) -> str:
    """The command line that answers the same. file: where the spec of an uploaded model is saved."""
    model = file or candidate.model
    if load.mode != "rate":
        asked = {"hw": candidate.hw, **options_of(candidate, load), "set": candidate.changes}
        return command_line("estimate", model, **asked)
    lengths_of = {"input_len": load.input_len, "output_len": load.output_len}
    asked = {"hw": candidate.hw, **server_options(candidate), "price": candidate.price, "set": candidate.changes}
    asked |= {"rate": load.rate, **RUN}
    return command_line("simulate", model, **asked) + "".join(
        f" --{name.replace('_', '-')} {value}" for name, value in lengths_of.items()
    )
