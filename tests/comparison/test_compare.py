"""Models and devices set against each other."""

from __future__ import annotations

import json

import pytest

from archsim import api
from archsim.base.errors import UnknownName, UsageError
from archsim.comparison.compare import Comparison
from archsim.comparison.uncertainty import Ratio
from archsim.render.pages.compare import interval, rows, verdict


@pytest.fixture(scope="module")
def crossed() -> Comparison:
    """Three models on two devices."""
    return api.compare(["llama3-8b", "qwen3-8b", "mamba-2.8b"], "h100-sxm,a100-sxm-80gb")


def test_crossed(crossed: Comparison) -> None:
    """Every model on every device, the devices outermost, and what `estimate` says of each."""
    labels = [c.label for c in crossed.candidates]
    assert labels[:3] == ["llama3-8b on h100-sxm", "qwen3-8b on h100-sxm", "mamba-2.8b on h100-sxm"]
    assert len(labels) == 6
    own = api.estimate("qwen3-8b", "a100-sxm-80gb")
    assert crossed.candidates[4].figures["tpot_s"] == own.metrics["tpot_s"]


def test_ratios_are_against_the_first(crossed: Comparison) -> None:
    """A figure over that of the first; one that the first does not have, or that is zero there, has no ratio."""
    for c in crossed.candidates:
        for name, value in crossed.ratios(c).items():
            base, own = crossed.first.figures[name], c.figures[name]
            assert value is None if not base or own is None else value == pytest.approx(own / base)
    assert crossed.ratios(crossed.candidates[2])["kv_bytes_per_token"] == 0.0


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_parts_add_up(crossed: Comparison, phase: str) -> None:
    """The parts in which a phase differs add up to the difference, the largest first."""
    for c in crossed.candidates[1:]:
        parts = crossed.parts(c, phase)
        times = [getattr(x.answer, phase).expected_s for x in (c, crossed.first)]
        assert sum(p.delta_s for p in parts) == pytest.approx(times[0] - times[1], rel=1e-9)
        assert [abs(p.delta_s) for p in parts] == sorted((abs(p.delta_s) for p in parts), reverse=True)


def test_ranking(crossed: Comparison) -> None:
    """The middle is the ratio of the times; on another device the interval is wider than on the same."""
    first, second = crossed.candidates[1], crossed.candidates[4]
    near, far = crossed.ranking(first)["decode"], crossed.ranking(second)["decode"]
    assert near is not None
    assert far is not None
    assert near.value == pytest.approx(crossed.ratios(first)["tpot_s"])
    assert near.low < near.value < near.high
    assert far.high / far.low > near.high / near.low


def test_a_part_in_common_is_certain() -> None:
    """Two models that differ only in the vocabulary: the smaller one is faster, whatever the error."""
    found = api.compare(["llama3-8b", "llama3-8b"], "h100-sxm", set=["vocab_size=32000"])
    ranked = found.ranking(found.candidates[1])["decode"]
    assert ranked is not None
    assert ranked.faster > 0.99
    assert [c.label for c in found.candidates] == ["llama3-8b on h100-sxm", "llama3-8b (2) on h100-sxm"]


def test_what_cannot_be_stays_with_its_reason() -> None:
    """A degree that does not divide one model leaves the others compared."""
    found = api.compare(["llama3-8b", "gpt2-xl"], "h100-sxm", tp=4)
    assert found.candidates[0].answer is not None
    assert found.candidates[1].answer is None
    assert found.candidates[1].reason
    data = found.to_dict()
    assert data["candidates"][1]["estimate"] is None
    json.dumps(data, allow_nan=False)


def test_encoders_are_compared_without_decode() -> None:
    """An encoder has a prefill alone."""
    found = api.compare(["bert-base", "bert-large"], "t4", input_len=512)
    assert found.ranking(found.candidates[1])["decode"] is None
    assert found.ratios(found.candidates[1])["tpot_s"] is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_formats_that_names_imply() -> None:
    """`-FP8` changes one candidate, `weights` all of them."""
    found = api.compare(["llama3-8b", "llama3-8b-FP8"], "h100-sxm")
    assert [c.answer.formats.name for c in found.candidates if c.answer] == ["bf16", "fp8"]
    assert [c.name for c in found.candidates] == ["llama3-8b", "llama3-8b fp8"]
    found = api.compare(["llama3-8b", "llama3-8b-FP8"], "h100-sxm", weights="int8")
    assert [c.answer.formats.name for c in found.candidates if c.answer] == ["int8", "int8"]


def test_nothing_to_compare() -> None:
    """One candidate, an unknown name and an unknown option are refused."""
    with pytest.raises(UsageError, match="nothing to compare"):
        api.compare(["llama3-8b"], "h100-sxm")
    with pytest.raises(UnknownName):
        api.compare(["llama3-8b", "lama-3-99b"], "h100-sxm")
    with pytest.raises(UsageError, match="no option"):
        api.compare(["llama3-8b", "qwen3-8b"], "h100-sxm", bach=2)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Ratio(1.0, 1.0, 1.0, 0.5), "the same"),
        (Ratio(0.5, 0.4, 0.6, 1.0), "faster, > 99 % sure"),
        (Ratio(1.2, 1.05, 1.4, 0.05), "slower, 95 % sure"),
        (Ratio(1.1, 0.9, 1.3, 0.2), "probably slower, 80 % sure"),
        (Ratio(1.01, 0.8, 1.3, 0.47), "too close to call (53 % likely slower)"),
    ],
)
def test_verdicts(found: Ratio, words: str) -> None:
    """A ranking in words is as sure as its probability."""
    assert verdict(found) == words


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (Ratio(1.0, 1.0, 1.0, 0.5), ("1.000", "exact")),
        (Ratio(0.5, 0.4, 0.6, 1.0), ("0.500", "0.400 – 0.600")),
        (Ratio(0.99996, 0.99993, 0.99999, 0.99), ("0.99996", "0.99993 – 0.99999")),
        (Ratio(0.0647, 0.043, 0.0934, 1.0), ("0.0647", "0.0430 – 0.0934")),
        (Ratio(24.021, 17.7, 33.4, 0.0), ("24.02", "17.70 – 33.40")),
        (Ratio(12345.6, 11000.0, 13000.0, 0.0), ("12,346", "11,000 – 13,000")),
    ],
)
def test_intervals(found: Ratio, shown: tuple[str, str]) -> None:
    """As many digits as tell the ratio from the ends of its interval."""
    assert interval(found) == shown


# ---------------------------------------------------------------------- ranges
def test_each_workload_is_compared_for_itself() -> None:
    """A range of batches: every candidate at every batch, against the first at that batch."""
    found = api.compare(["llama3-8b", "qwen3-8b"], "h100-sxm", batch="1-4*2")
    assert [c.workload.batch for c in found.candidates] == [1, 1, 2, 2, 4, 4]
    for c in found.candidates:
        own = api.estimate(c.model, "h100-sxm", batch=c.workload.batch)
        assert c.figures["tpot_s"] == own.metrics["tpot_s"]
        base = found.base(c)
        assert (base.workload, base.name) == (c.workload, "llama3-8b")
        times = [x.figures["tpot_s"] or 0 for x in (c, base)]
        assert found.ratios(c)["tpot_s"] == pytest.approx(times[0] / times[1])
    alone = api.compare(["llama3-8b", "qwen3-8b"], "h100-sxm", batch=4)
    assert found.to_dict()["candidates"][4:] == alone.to_dict()["candidates"]


def test_degrees_are_candidates() -> None:
    """A range of degrees: one model beside itself on more devices; what cannot be has its reason."""
    found = api.compare("llama3-8b", "h100-sxm", tp="1,2,3")
    assert [c.label for c in found.candidates] == [f"llama3-8b on h100-sxm, tp {n}" for n in (1, 2, 3)]
    assert [c.fits for c in found.candidates] == [True, True, False]
    assert found.candidates[1].figures["devices"] == 2
    assert "does not divide" in found.candidates[2].reason


@pytest.mark.parametrize("options", [{"batch": "4-1"}, {"batch": "x"}, {"tp": 0}, {"batch": "1-64+1"}])
def test_ranges_that_cannot_be(options: dict[str, object]) -> None:
    """What is no range, goes down, is not positive or makes too many candidates is refused."""
    with pytest.raises(UsageError):
        api.compare(["llama3-8b", "qwen3-8b"], "h100-sxm", **options)


# ---------------------------------------------------------------------- rows
def test_rows(crossed: Comparison) -> None:
    """Rows of candidates hold the figures; rows of parts add up to what sets the phases apart; both have one key."""
    table = rows(crossed)
    kinds = [line["row"] for line in table]
    assert kinds == sorted(kinds)  # candidates first
    assert kinds.count("candidate") == len(crossed.candidates)
    key = ("label", "model", "hardware", "batch", "input_len", "output_len", "against")
    assert all(line[name] is not None for line in table for name in key)
    for c in crossed.candidates[1:]:
        assert c.answer is not None
        assert crossed.first.answer is not None
        parts = [x for x in table if x["row"] == "part" and x["label"] == c.label and x["phase"] == "decode"]
        assert c.answer.decode is not None
        assert crossed.first.answer.decode is not None
        delta = float(c.answer.decode.expected_s) - float(crossed.first.answer.decode.expected_s)
        assert sum(x["delta_s"] for x in parts) == pytest.approx(delta, rel=1e-9)
        listed = crossed.to_dict()["candidates"][crossed.candidates.index(c)]["difference"]["decode"]
        assert [(x["part"], x["this_s"]) for x in parts] == [(x["name"], x["this_s"]) for x in listed]
