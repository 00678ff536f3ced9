"""What the page shows, as data: up to four candidates and one load. It is written as the query of the page's URL.

Keys are the commands' flags: `model=llama3.1-8b&hw=h100-sxm&devices=2&model2=...&batch=8`. The second candidate's end
in 2, the third's in 3. A key that is not there has its default; what a link says wrongly is left out and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar
from urllib.parse import parse_qsl, urlencode
from urllib.parse import quote as quote_url

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote, shorten
from archsim.base.errors import ArchsimError
from archsim.ui.changes import BETWEEN, read_changes
from archsim.ui.choices import Choices

MOST = 4
"""Candidates side by side at most."""

LONGEST_QUERY = 4_000
"""Characters of a query at most."""

Mode = Literal["batch", "concurrency", "rate"]
"""How the load is stated: equal requests at once, requests in flight, or requests a second."""

MODES: tuple[Mode, ...] = ("batch", "concurrency", "rate")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model on devices. devices: None for the fewest that hold it. weights, kv_cache_dtype: empty for the
    checkpoint's own and for the engine's default. tp: None for the degree that archsim picks. price: as `--price`,
    empty for none. changes: of the model's spec, each as `--set` takes it.
    """

    model: str = "llama3.1-8b"
    hw: str = "h100-sxm"
    devices: int | None = None
    weights: str = ""
    kv_cache_dtype: str = ""
    engine: str = "vllm"
    tp: int | None = None
    price: str = ""
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests that all candidates serve. input_len, output_len: tokens. rate: requests a second."""

    input_len: int = 2048
    output_len: int = 256
    mode: Mode = "batch"
    batch: int = 1
    concurrency: int = 16
    rate: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that a link says."""

    candidates: tuple[Candidate, ...] = (Candidate(),)
    load: Load = Load()

    def query(self) -> str:
        """The query of the page's URL, without the question mark: what differs from a default, in a fixed order."""
        pairs: list[tuple[str, str]] = []
        for i, candidate in enumerate(self.candidates):
            end = str(i + 1) if i else ""
            pairs += [(key + end, text) for key, text in _candidate_pairs(candidate)]
        return urlencode([*pairs, *_load_pairs(self.load)], safe="@/:", quote_via=quote_url)


Finding = str
"""What is wrong with a link or a control, as one sentence."""


def parse_state(query: str, choices: Choices, uploads: Mapping[str, object]) -> tuple[State, tuple[Finding, ...]]:
    """The state of a query, and what had to be left out of it. uploads: keys of the models that were uploaded."""
    if len(query) > LONGEST_QUERY:
        return State(), (f"the link is longer than {LONGEST_QUERY:,} characters and is ignored",)
    reader = _Reader(dict(reversed(parse_qsl(query.lstrip("?"), keep_blank_values=True))), choices, uploads)
    state = reader.state()
    return state, tuple(reader.findings)


def _candidate_pairs(candidate: Candidate) -> Iterator[tuple[str, str]]:
    yield "model", candidate.model
    yield "hw", candidate.hw
    if candidate.devices is not None:
        yield "devices", str(candidate.devices)
    if candidate.weights:
        yield "weights", candidate.weights
    if candidate.kv_cache_dtype:
        yield "kv-cache-dtype", candidate.kv_cache_dtype
    yield "engine", candidate.engine
    if candidate.tp is not None:
        yield "tp", str(candidate.tp)
    if candidate.price:
        yield "price", candidate.price
    if candidate.changes:
        yield "set", BETWEEN.join(candidate.changes)


def _load_pairs(load: Load) -> Iterator[tuple[str, str]]:
    yield "input-len", str(load.input_len)
    yield "output-len", str(load.output_len)
    yield load.mode, f"{getattr(load, load.mode):g}" if load.mode == "rate" else str(getattr(load, load.mode))


LONGEST_CONTEXT = 2**24
LARGEST_LOAD = 2**16
MOST_DEVICES = 2**13


class _Reader:
    """Reads the pairs of a query one by one, each kept or reported."""

    def __init__(self, pairs: dict[str, str], choices: Choices, uploads: Mapping[str, object]) -> None:
        self.pairs, self.choices, self.uploads = pairs, choices, uploads
        self.findings: list[Finding] = []

    def state(self) -> State:
        """The state; pairs that nobody has asked for are reported."""
        ends = ["", *(str(i) for i in range(2, MOST + 1))]
        given = [end for end in ends if any(f"{key}{end}" in self.pairs for key in ("model", "hw"))] or [""]
        candidates = tuple(self.candidate(end) for end in given)
        load = self.load()
        for key in list(self.pairs)[:5]:
            self.findings.append(f"{quote(key)} in the link is unknown and is ignored")
        return State(candidates=candidates, load=load)

    def candidate(self, end: str) -> Candidate:
        """The candidate whose keys have this end."""
        usual = Candidate()
        model, hint = self.value(f"model{end}", (usual.model, ""), self.model)
        return Candidate(
            model=model,
            hw=self.value(f"hw{end}", usual.hw, self.choices.device),
            devices=self.value(f"devices{end}", None, _devices),
            weights=self.value(f"weights{end}", hint, self.optional(self.choices.format)),
            kv_cache_dtype=self.value(f"kv-cache-dtype{end}", "", self.optional(self.choices.format)),
            engine=self.value(f"engine{end}", usual.engine, self.choices.engine),
            tp=self.value(f"tp{end}", None, _devices),
            price=self.value(f"price{end}", "", read_price),
            changes=self.value(f"set{end}", (), read_changes),
        )

    def model(self, text: str) -> tuple[str, str]:
        """The name of the catalog or the key of an upload, and the format that a suffix implies. Raises NoSuchName."""
        if text in self.uploads:
            return text, ""
        if text.startswith("upload-"):
            raise ValueError("the link names a file that was uploaded elsewhere: upload it here first")
        name, hint = self.choices.model(text)
        return name, hint or ""

    def optional(self, look_up: Callable[[str], str]) -> Callable[[str], str]:
        """A look-up for which an empty text stands for the default."""
        return lambda text: look_up(text) if text else ""

    def load(self) -> Load:
        """The load. Of several modes in one link the last of batch, concurrency and rate counts."""
        usual = Load()
        modes = [mode for mode in MODES if mode in self.pairs]
        return Load(
            input_len=self.value("input-len", usual.input_len, _whole(1, LONGEST_CONTEXT)),
            output_len=self.value("output-len", usual.output_len, _whole(1, LONGEST_CONTEXT)),
            mode=modes[-1] if modes else usual.mode,
            batch=self.value("batch", usual.batch, _whole(1, LARGEST_LOAD)),
            concurrency=self.value("concurrency", usual.concurrency, _whole(1, LARGEST_LOAD)),
            rate=self.value("rate", usual.rate, _rate),
        )

    def value(self, key: str, usual: T, read: Callable[[str], T]) -> T:
        """What stands behind a key; where it is not there or wrong, what is usual."""
        text = self.pairs.pop(key, None)
        if text is None:
            return usual
        try:
            return read(text)
        except ArchsimError as error:
            reason, hints = error.message, error.hints
        except ValueError as error:
            reason, hints = str(error), ()
        instead = (
            "" if usual in (None, "", ()) else f"{usual[0] if isinstance(usual, tuple) else usual} is shown instead"
        )
        self.findings.append(shorten("; ".join(filter(None, (f"{key}: {reason}", *hints, instead))), 400))
        return usual


_PRICE = re.compile(r"\$?[0-9]{1,6}(\.[0-9]{1,6})?|[a-z][a-z0-9 ._-]{0,39}(:[a-z][a-z-]{0,19})?")


def read_price(text: str) -> str:
    """Dollars per device and hour, or a name that the table of prices is asked for."""
    lowered = text.strip().lower()
    if lowered and _PRICE.fullmatch(lowered) is None:
        raise ValueError(f"dollars per device and hour, a provider or `cheapest`, not {quote(text, 40)}")
    return lowered.removeprefix("$")


def _devices(text: str) -> int | None:
    return None if text in ("", "auto") else _whole(1, MOST_DEVICES)(text)


def _whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number between two bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
            raise ValueError(f"a whole number from {low:,} to {high:,}, not {quote(text, 30)}")
        return int(text)

    return read


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.001 <= value <= 10_000:
        raise ValueError(f"requests per second from 0.001 to 10,000, not {quote(text, 30)}")
    return value
