"""The present machine: its facts, its device file, and what counts as quiet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from archsim.cli.app import app
from archsim.measure.device_document import device_document
from archsim.measure.here import CacheFact, MachineFacts
from archsim.spec.hardware import Hardware

torch = pytest.importorskip("torch")

from archsim.base.errors import UsageError  # noqa: E402
from archsim.measure import probe  # noqa: E402
from archsim.measure.cpu_shapes import CPU_SUITES  # noqa: E402
from archsim.measure.here import machine_facts  # noqa: E402
from archsim.measure.plan import parse_suites  # noqa: E402
from archsim.measure.probe import Noise, Rate  # noqa: E402

FACTS = MachineFacts(
    name="AMD Ryzen 7 7840U", vendor="AMD", cores=8, threads=8, clock_mhz=None, memory=32 << 30, numa=1,
    caches=(CacheFact(level=1, size=8 << 15), CacheFact(level=2, size=8 << 20), CacheFact(level=3, size=16 << 20)),
    sets=("avx2", "avx512f"), capability="AVX512", torch="2.13.0",
)  # fmt: skip
QUIET = Noise(load=0.1, cores=8, others=0.01, stolen=0.0, spread=0.02, drift=0.01)


def rates(facts: MachineFacts, value: float = 1e11) -> list[Rate]:
    """One rate for every figure that a device file states."""
    names = [f"bandwidth/{name}" for name, _ in probe.levels(facts)] + ["peak/fp32", "peak/bf16", "operator"]
    return [
        Rate(what=name, threads=threads, value=value * threads, spread=0.03, drift=0.0, kernel="k")
        for name in names for threads in (1, facts.threads)
    ]  # fmt: skip


def test_device_file_is_a_device_of_the_catalog() -> None:
    device = Hardware.model_validate(device_document(FACTS, rates(FACTS), QUIET))
    assert device.id == "amd-ryzen-7-7840u-8c"
    assert device.bandwidth == 8e11
    assert device.peak_flops("bf16").flops == 8e11
    assert [level.name for level in device.cache.levels] == ["l2", "llc"]
    assert device.cache.levels[0].one_thread == "100 GB/s"
    assert not device.warnings  # every number has its source
    source = device.sources["here"]
    assert source.kind == "measured"
    assert source.spread["memory.bandwidth"] == 0.03


def test_products_on_matrix_units_stand_beside_the_vector_unit() -> None:
    with_amx = replace(FACTS, sets=("avx512f", "amx_tile", "amx_bf16"))
    peaks = device_document(with_amx, rates(with_amx), QUIET)["compute"]["peak"]
    assert set(peaks["bf16"]) == {"matrix"}
    assert set(peaks["fp32"]) == {"vector"}


@pytest.mark.parametrize(
    ("load", "others", "stolen", "spread", "drift", "reasons"),
    [
        (9.0, 0.01, 0.0, 0.01, 0.01, 0),
        (3.0, None, 0.0, 0.01, 0.01, 1),
        (0.1, 0.3, 0.0, 0.01, 0.01, 1),
        (None, None, 0.2, 0.3, 0.2, 3),
        (None, None, None, 0.01, 0.06, 1),
    ],
)
def test_a_noisy_machine_is_not_called_quiet(
    load: float | None, others: float | None, stolen: float | None, spread: float, drift: float, reasons: int
) -> None:
    seen = [Rate(what="peak/fp32", threads=1, value=1.0, spread=spread, drift=drift, kernel="k")]
    noise = probe.noise_of(seen, load, 8, probe.Meanwhile(others, stolen))
    assert len(noise.reasons) == reasons
    assert noise.quiet == (reasons == 0)
    document = device_document(FACTS, rates(FACTS), noise)
    assert document["confidence"] == ("high" if noise.quiet else "low")
    assert ("not quiet" in document["notes"][-1]) != noise.quiet


def test_what_disturbs_a_few_rounds_does_not_move_a_rate() -> None:
    one = probe.Probe("peak/fp32", "k", 1, 1.0, lambda: None)
    (rate,) = probe._best([one], [[10.0, 10.1, 1.0, 9.9, 0.5, 10.0]])
    assert rate.value == pytest.approx(10.0, rel=0.02)
    assert rate.spread > 0.3


def test_facts_of_this_machine() -> None:
    facts = machine_facts()
    assert facts.cores >= 1
    assert facts.memory > 1 << 28
    assert facts.threads == torch.get_num_threads()
    assert all(a.level < b.level for a, b in zip(facts.caches, facts.caches[1:], strict=False))


def test_measure_here_writes_a_device_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ROUNDS", 2)
    monkeypatch.setattr(probe, "BLOCK_S", 0.0)
    monkeypatch.setattr(probe, "SIDES", (32,))
    monkeypatch.setattr(probe, "LARGEST", 1 << 20)
    path = tmp_path / "mine.yaml"
    result = CliRunner().invoke(app, ["measure", "--here", "--suite", "probe", "--out", str(path), "--json", "-q"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["file"] == str(path)
    assert {"bandwidth/memory", "peak/fp32", "operator"} <= {rate["what"] for rate in answer["rates"]}
    device = Hardware.model_validate(yaml.safe_load(path.read_text()))
    assert device.bandwidth > 0
    again = CliRunner().invoke(app, ["measure", "--here", "--suite", "probe", "--out", str(path), "-q"])
    assert again.exit_code != 0  # a file that exists stays, unless --force


def test_suites_of_a_processor_are_named(tmp_path: Path) -> None:
    """A suite of GPUs is refused with those that a processor has, before anything is timed or written."""
    path = tmp_path / "here.yaml"
    result = CliRunner().invoke(app, ["measure", "--here", "--suite", "gemm", "--out", str(path), "-q"])
    assert result.exit_code != 0
    assert not path.exists()
    assert parse_suites("cpu_training, probe", ("probe", *CPU_SUITES)) == ("probe", "cpu_training")
    with pytest.raises(UsageError, match="no suite named `gemm`"):
        parse_suites("gemm", ("probe", *CPU_SUITES))
