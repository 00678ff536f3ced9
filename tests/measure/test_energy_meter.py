"""Counters of energy: read where the device tells, else nothing is claimed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from archsim.measure import energy_meter
from archsim.measure.bench import Bench


def test_watts_are_joules_over_seconds() -> None:
    """Of whatever a counter says; one that goes backwards gives none."""
    ticks = iter(range(0, 10**6, 5))
    watts = energy_meter.mean_watts(lambda: None, lambda: None, lambda: float(next(ticks)), 0.01)
    assert watts is not None and watts > 0
    back = iter(range(10**6, 0, -5))
    assert energy_meter.mean_watts(lambda: None, lambda: None, lambda: float(next(back)), 0.01) is None


def test_packages_of_a_cpu_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their counters alone, without those of the parts of a package; none where they cannot be read."""
    for name, joules in (("intel-rapl:0", 3), ("intel-rapl:1", 4), ("intel-rapl:0:0", 100)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{joules * 10**6}\n")
    monkeypatch.setattr(energy_meter, "RAPL", tmp_path)
    counter = energy_meter.energy_counter("cpu")
    assert counter is not None and counter() == 7.0
    monkeypatch.setattr(energy_meter, "RAPL", tmp_path / "none")
    assert energy_meter.energy_counter("cpu") is None


def test_a_bench_remarks_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each point, and only where it is asked for."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("archsim.measure.bench.energy_counter", lambda device: lambda: float(next(ticks)))
    monkeypatch.setattr("archsim.measure.bench.POWER_S", 0.01)
    bench = Bench("cpu", quick=True, watts=True)
    bench.time([lambda: None])
    assert bench.remark().endswith(" W") and bench.remark() == ""
    plain = Bench("cpu", quick=True)
    plain.time([lambda: None])
    assert plain.remark() == ""
