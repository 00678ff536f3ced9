"""What it costs to carry a fit over to another device, and the interval that says so."""

import numpy as np

from archsim.calibration.transfer import Carried, GradePredictions, _alike, _level
from archsim.render.pages.accuracy import DISTANCES, transfers

PLAIN, HALF = Carried(False, 1.0), Carried(False, 0.5)


def part(device: str, factor: float, half: float, rows: int = 200) -> GradePredictions:
    """Rows of a device that measure `factor` times what is predicted from another, `half` with half the trust."""
    truth = np.full(rows, 1e-4) * np.random.default_rng(3).lognormal(sigma=0.05, size=rows)
    by_carried = {PLAIN: np.full(rows, 1e-4 / factor), HALF: np.full(rows, 1e-4 / half)}
    return GradePredictions(device, by_carried, np.zeros(rows, int), truth)


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


def test_the_page_states_every_distance() -> None:
    """With error, coverage and width of each class."""
    page = transfers()
    for title in DISTANCES.values():
        assert title in page
    (line,) = [line for line in page.split(DISTANCES["device"])[1].split("###")[0].splitlines() if "| gemm |" in line]
    assert line.count("%") == 4 and "×" in line


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
