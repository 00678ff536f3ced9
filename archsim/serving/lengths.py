"""How long prompts and answers are: a number, `uniform:A-B`, `lognormal:MEAN,CV`, `normal:MEAN,CV`, a column of a file
(`lengths.csv:COLUMN`) or `sharegpt`.

Every distribution maps one uniform number to one length, so a request keeps its place in the distribution when the
distribution changes.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.input_file import unusable
from archsim.serving.trace_file import LONGEST, lines_of

FORMS = "1k, uniform:A-B, lognormal:MEAN,CV, normal:MEAN,CV, file.csv:COLUMN or sharegpt[:MEAN]"

SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
CHAT_PROMPTS = (
    0.002,
    0.025,
    0.157,
    0.179,
    0.335,
    0.349,
    0.609,
    0.883,
    0.928,
    0.979,
    1.139,
    2.368,
    3.536,
    3.587,
    12.168,
)
CHAT_ANSWERS = (0.033, 0.076, 0.194, 0.256, 0.365, 0.431, 0.488, 0.611, 0.838, 1.819, 1.895, 2.008, 2.136, 2.847, 4.737)
"""Quantiles at `SHARES` over the mean, of the 19,366 prompts and answers of the Azure conversation trace of 2023 (Patel
et al., Splitwise, ISCA 2024; Azure/AzurePublicDataset b469a11, CC-BY 4.0)."""

SHAREGPT_PROMPT, SHAREGPT_ANSWER = 217.4, 201.6
"""Mean tokens of 1,000 requests as `bench_serving --dataset-name sharegpt` draws them (gpustack performance lab,
47277d7: 217,393 and 201,628 tokens)."""


LEAST = 2.0**-53
"""The smallest share above 0 that is drawn."""


class Lengths(Protocol):
    """A distribution of lengths. text: as it was written. mean: tokens. file: where its draws are rows of a file: two
    columns of one file keep together.
    """

    @property
    def text(self) -> str: ...
    @property
    def mean(self) -> float: ...
    @property
    def file(self) -> str: ...
    def quantile(self, share: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Formula:
    """Lengths of a formula."""

    text: str
    mean: float
    quantile: Callable[[float], float]
    file: str = ""


@dataclass(frozen=True)
class Sample:
    """Lengths drawn from a list of them."""

    text: str
    values: Sequence[int]
    file: str

    @cached_property
    def mean(self) -> float:
        """Tokens."""
        return sum(self.values) / len(self.values)

    def quantile(self, share: float) -> float:
        """The value in the row at this share of the rows, which are not sorted."""
        return float(self.values[int(share * len(self.values))])


def parse_lengths(text: str | float, option: str, answers: bool = False, least: int = 1) -> Lengths:
    """The distribution that a text names. option: its flag, for messages. answers: whether of answers, where a name
    stands for both. least: the smallest value of it: 1 token, or 0 seconds. Raises UsageError, and SpecError (E109)
    for a file that cannot be used.
    """
    written = str(text).strip()
    kind, _, rest = written.partition(":")
    if kind in ("uniform", "lognormal", "normal"):
        return _formula(kind, rest, written, option, least)
    if kind == "sharegpt":
        return _chat(rest, written, option, answers)
    name, _, column = written.rpartition(":")
    if name and not written[:1].isdigit():
        return Sample(written, read_column(Path(name), column), name)
    length = parse_number(written, option, least)
    return Formula(written, length, lambda _: length)


def parse_number(text: str, option: str, least: int = 1) -> float:
    """A number of tokens or seconds; `k` and `m` are 1024 and 1024². Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([kKmM]?)", text.strip())
    value = float(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()] if match else -1.0
    if not least <= value <= LONGEST:
        what = f"length between 1 and {LONGEST:,} tokens" if least else "number of seconds"
        raise UsageError(f"`--{option}`: {quote(text)} is no {what}", hints=(f"write {FORMS}",))
    return value


def _formula(kind: str, rest: str, written: str, option: str, least: int) -> Formula:
    """A uniform, normal or lognormal distribution."""
    first, _, second = rest.partition("-" if kind == "uniform" else ",")
    low = parse_number(first, option, least)
    if kind == "uniform":
        high = parse_number(second, option, least)
        if high < low:
            raise UsageError(f"`--{option}`: {quote(written)} goes down; write the smaller end first")
        return Formula(written, (low + high) / 2, lambda u: low + u * (high - low))
    spread = _spread(second, written, option)
    bell = NormalDist().inv_cdf
    if kind == "normal":
        return Formula(written, low, lambda u: low * (1 + spread * bell(_inside(u))))
    sigma = math.sqrt(math.log1p(spread**2))
    return Formula(written, low, lambda u: low * math.exp(sigma * bell(_inside(u)) - sigma**2 / 2))


def _spread(text: str, written: str, option: str) -> float:
    """A coefficient of variation: standard deviation over mean."""
    match = re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}", text.strip())
    if match is None or float(text) > 10:
        raise UsageError(
            f"`--{option}`: {quote(written)} needs a coefficient of variation between 0 and 10 after its mean",
            hints=("write lognormal:1k,0.5: mean 1024 tokens, standard deviation half of it",),
        )
    return float(text)


def _inside(share: float) -> float:
    """A share that is neither 0 nor 1."""
    return share if LEAST <= share < 1 else min(max(share, LEAST), 1 - LEAST)


def _chat(rest: str, written: str, option: str, answers: bool) -> Formula:
    """The lengths of chats: a measured shape, scaled to a mean."""
    mean = parse_number(rest, option) if rest else SHAREGPT_ANSWER if answers else SHAREGPT_PROMPT
    points = CHAT_ANSWERS if answers else CHAT_PROMPTS
    area = sum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(zip(SHARES, points, strict=True)))
    unit = mean / area

    def quantile(share: float) -> float:
        at = bisect_left(SHARES, share, 1)
        part = (share - SHARES[at - 1]) / (SHARES[at] - SHARES[at - 1])
        return unit * (points[at - 1] + part * (points[at] - points[at - 1]))

    return Formula(written, mean, quantile)


def read_column(path: Path, column: str) -> Sequence[int]:
    """The lengths in a column of a CSV file, gzipped or not. Raises SpecError (E109)."""
    with lines_of(path) as lines:
        reader = csv.reader(lines)
        header = [name.strip() for name in next(reader, [])]
        if column not in header:
            shown = ", ".join(header[:12]) or "none"
            raise unusable(path, f"no column {quote(column)}; it has {shown}")
        at, values = header.index(column), array("q")
        for line in reader:
            if line:
                values.append(length_field(line[at] if at < len(line) else "", path, reader.line_num, column))
    if not values:
        raise unusable(path, f"no row has a {quote(column)}")
    return values


def length_field(text: str, path: Path, line: int, column: str) -> int:
    """A length of a table. Raises SpecError (E109)."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= LONGEST or value != int(value):
        raise unusable(
            path, f"line {line:,}: {quote(column)} is {quote(text)}, not a number of tokens from 1 to {LONGEST:,}"
        )
    return int(value)
