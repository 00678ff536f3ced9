"""What it costs to carry a fit over to another device, and the interval that says so."""

import numpy as np
import pytest

from archsim.accuracy.table import Group, Key
from archsim.calibration.transfer import (
    HELD,
    WITHOUT,
    Carried,
    GradePredictions,
    _alike,
    _left,
    _level,
    _quickest,
    _without_implied,
)
from archsim.render.pages.accuracy import DISTANCES, transfers
from archsim.spec.load import load_hardware
from archsim.timing.calibration import Entry, FitQuery, Store
from archsim.timing.kernel_timer import timer

PLAIN, HALF = Carried(False, 1.0), Carried(False, 0.5)


def part(device: str, factor: float, half: float, rows: int = 200) -> GradePredictions:
    """Rows of a device that measure `factor` times what is predicted from another, `half` with half the trust."""
    truth = np.full(rows, 1e-4) * np.random.default_rng(3).lognormal(sigma=0.05, size=rows)
    by_carried = {PLAIN: np.full(rows, 1e-4 / factor), HALF: np.full(rows, 1e-4 / half)}
    return GradePredictions(device, by_carried, dict.fromkeys(by_carried, np.zeros(rows, int)), truth)


def test_a_further_device_may_lie_on_either_side() -> None:
    """From two devices, one predicted too slow by the other and so the other too quick: both signs are inside."""
    level = _level([part("a", 1.25, 1.5), part("b", 0.8, 0.7)])
    low, high = level["interval"]["0"]
    assert low == -high and 0.2 < high < 0.35
    assert level["errors"]["covered"] > 0.7
    assert level["errors"]["devices"] == 2
    assert 1.5 < level["errors"]["width"] < 2


def test_what_is_best_is_carried_over() -> None:
    """As far as leaving devices out says: whole, half, or not at all."""
    assert _level([part("a", 1.25, 1.02), part("b", 0.8, 0.97)])["trust"] == 0.5
    assert _level([part("a", 1.02, 1.25), part("b", 0.97, 0.8)])["trust"] == 1.0


def test_launches_hide_no_other_algorithm() -> None:
    """Calls that are launches alone take as long by any kernel; the half with more work takes six times as long."""
    truth, work = np.full(200, 1e-5), np.linspace(1e-9, 1e-7, 200)
    truth[120:], work[120:] = 6e-4, 1e-5
    predicted = {PLAIN: np.where(work > 1e-6, 1e-4, 1e-5)}
    rows = GradePredictions("a", predicted, {PLAIN: np.zeros(200, int)}, truth)
    assert not rows.apart and rows._replace(bound=work).apart


def test_kernels_that_walk_alone_say_nothing_of_those_that_do_not() -> None:
    """Nor of how far another version's fit carries; where there are no others they do."""
    plain, alone = part("a", 1.1, 1.1)._replace(own=True), part("b", 9.0, 9.0)._replace(own=True, serial=True)
    for grade in ("device", "format", "engine", "datasheet"):
        assert _alike(grade, [plain, alone]) == [plain], grade
    assert _alike("device", [alone]) == [alone]


def test_the_page_states_every_distance() -> None:
    """With error, coverage and width of each class."""
    page = transfers()
    for title in DISTANCES.values():
        assert title in page
    (line,) = [line for line in page.split(DISTANCES["device"])[1].split("###")[0].splitlines() if "| gemm |" in line]
    assert line.count("%") == 4 and "×" in line


def test_the_form_that_costs_least_on_a_device_left_out_is_taken() -> None:
    """Rows that are all too slow on every device need one end alone; opposite ones need both."""
    one_side = _level([part("a", 0.5, 0.7), part("b", 0.5, 0.7)])["interval"]["0"]
    either = _level([part("a", 1.6, 1.6), part("b", 1 / 1.6, 1 / 1.6)])["interval"]["0"]
    assert min(abs(end) for end in one_side) < 0.3 * max(abs(end) for end in one_side)
    assert -either[0] == either[1] > np.log(1.5)


def test_regimes_of_one_scatter_share_an_interval() -> None:
    """What few rows of a regime show by chance is no interval of their own; where regimes differ it is."""
    rng = np.random.default_rng(2)

    def rows(device: str, *scatter: float) -> GradePredictions:
        regime = np.repeat(np.arange(4), 70)
        truth = 1e-4 * np.exp(rng.standard_t(2, 280) * np.repeat(scatter, 70))
        return GradePredictions(device, {PLAIN: np.full(280, 1e-4)}, {PLAIN: regime}, truth)

    alike = _level([rows(name, 0.2, 0.2, 0.2, 0.2) for name in "ab"])["interval"]
    apart = _level([rows(name, 0.9, 0.3, 0.1, 0.03) for name in "ab"])["interval"]
    assert len({tuple(ends) for ends in alike.values()}) == 1
    assert apart["0"][1] > 5 * apart["3"][1]


def test_another_format_is_judged_by_the_same_engine() -> None:
    """What another engine adds is an error of its own."""
    device = timer(load_hardware("h100-sxm")).device
    query = FitQuery(device, "sglang", "0.5", "moe", "fp8", "", "")

    def entry(engine: str, dtype: str) -> Entry:
        return Entry("h100-sxm", engine, "", "moe", dtype, {}, vendor="NVIDIA")

    known = Store(entries=(entry("sglang", "bf16"), entry("vllm", "bf16"), entry("vllm", "fp8")), levels={}, engines={})
    assert [e.engine for e in _left(known, query, "format", WITHOUT["format"]).entries] == ["sglang"]
    assert [e.dtype for e in _left(known, query, "engine", WITHOUT["engine"]).entries] == ["fp8"]


def test_a_question_that_names_no_implementation_states_none_of_its_extents() -> None:
    """Multiprocessors and the manner of sending follow from the kernel: its quickest row stands for a shape."""
    dims = {
        "m": np.ones(3),
        "hidden": np.ones(3),
        "sms": np.array([4.0, 20.0, 0.0]),
        "picked": np.array([0.0, 0.0, 1.0]),
    }
    key = Key("moe_dispatch", "h100-sxm", "fp8", "", "sglang 0.5", "")
    left = _quickest(_without_implied(Group(key=key, rows=np.arange(3), dims=dims, seconds=np.array([3.0, 2.0, 1.0]))))
    assert left.seconds.tolist() == [1.0] and set(left.dims) == {"m", "hidden"}


def test_another_device_is_judged_by_the_same_engine() -> None:
    """What another engine adds is an error of its own; where no engine has two devices, all rows count."""
    other = part("a", 2.0, 2.0)
    own = part("b", 1.1, 1.1)._replace(own=True)
    assert _alike("device", [other, own]) == [own]
    assert _alike("device", [other]) == [other]


def test_another_algorithm_says_nothing_of_engines() -> None:
    """A kernel that takes six times as long, or a sixth, is left out; one that takes twice as long is not."""
    slow, quick, usual = part("a", 6.0, 5.0), part("a", 1 / 6, 1 / 5), part("a", 2.0, 2.1)
    assert _alike("engine", [slow, usual, quick]) == [usual]
    assert _alike("engine", [slow]) == []
    assert _alike("format", [slow, usual]) == [slow, usual]


def test_the_width_is_that_of_the_interval_that_rows_have() -> None:
    """By regime: rows of launches that scatter do not widen those of large kernels, which are most."""
    rng = np.random.default_rng(5)
    truth = np.full(400, 1e-4) * np.exp(np.r_[rng.normal(0, 0.05, 300), rng.normal(0, 1.0, 100)])
    regime = np.r_[np.full(300, 3), np.zeros(100, int)]
    rows = GradePredictions("a", {PLAIN: np.full(400, 1e-4)}, {PLAIN: regime}, truth)
    level = _level([rows])
    low, high = level["interval"]["3"]
    assert level["errors"]["width"] == pytest.approx(np.exp(high - low), rel=0.01)
    assert 1.1 < level["errors"]["width"] < 1.2
    assert level["interval"]["0"][1] > 5 * high


def test_of_equal_shapes_the_quickest_implementation_counts() -> None:
    """Engines pick it; a shape that one implementation alone was timed at stays."""
    key = Key("attn_decode", "h100-sxm", "bf16", "bf16", "sglang 0.5", "")
    dims = {"batch": np.array([1.0, 8.0, 1.0, 8.0, 64.0])}
    group = Group(key=key, rows=np.arange(5), dims=dims, seconds=np.array([3.0, 1.0, 2.0, 4.0, 9.0]))
    left = _quickest(group)
    assert left.seconds.tolist() == [1.0, 2.0, 9.0]
    assert left.dims["batch"].tolist() == [8.0, 1.0, 64.0]


def test_usual_constants_are_the_middle_of_fits_where_these_come_nearer() -> None:
    """And those of the formula where they do not."""
    middle = Carried(False, 1.0, middle=True)

    def rows(device: str, formula: float, fits: float) -> GradePredictions:
        truth = np.full(200, 1e-4)
        times = {PLAIN: truth * formula, middle: truth * fits}
        return GradePredictions(device, times, dict.fromkeys(times, np.zeros(200, int)), truth)

    assert _level([rows("a", 2.0, 1.1), rows("b", 0.5, 0.9)])["middle"] is True
    assert _level([rows("a", 1.1, 2.0), rows("b", 0.9, 0.5)])["middle"] is False


def test_intervals_of_few_devices_hold_a_further_one() -> None:
    """Of two devices one scatters more than the other: their rows together would leave half of it outside."""
    rng = np.random.default_rng(7)

    def rows(device: str, scatter: float) -> GradePredictions:
        truth = 1e-4 * rng.lognormal(sigma=scatter, size=400)
        return GradePredictions(device, {PLAIN: np.full(400, 1e-4)}, {PLAIN: np.zeros(400, int)}, truth)

    alike = _level([rows("a", 0.2), rows("b", 0.2)])
    apart = _level([rows("a", 0.12), rows("b", 0.4)])
    assert alike["errors"]["covered"] >= HELD and alike["interval"]["0"][1] == pytest.approx(0.2 * 1.28, rel=0.15)
    assert apart["errors"]["covered"] >= HELD
    together = np.concatenate([rows("a", 0.12).truth, rows("b", 0.4).truth])
    assert apart["interval"]["0"][1] > 1.02 * np.quantile(np.abs(np.log(together / 1e-4)), 0.8)


def test_an_algorithm_of_its_own_says_nothing_of_what_is_usual() -> None:
    """One engine at a ninth of the rate is no kernel that another device's engine is taken to run; where all are apart
    from what is usual, all count.
    """
    near, far = part("a", 1.2, 1.2), part("b", 9.0, 9.0)
    assert _alike("datasheet", [near, far]) == [near]
    assert _alike("datasheet", [far]) == [far]
