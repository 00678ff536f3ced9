"""Figures of serving points and runs under load as they are written beside the fits."""

from pathlib import Path

import numpy as np
import pytest
from accuracy import tables as t

from archsim.accuracy.files import read_table
from archsim.calibration.served_errors import fitted_on, served_errors
from archsim.timing.calibration import default_store

POINT = {
    "model_path": "llama3-8b", "system": "h100", "backend": "vllm", "backend_version": "0.24.0", "isl": 1024,
    "osl": 512, "gemm_quant_mode": "bf16", "tp_size": 1,
}  # fmt: skip


def test_groups_are_of_one_metric_engine_and_device(tmp_path: Path) -> None:
    """A TPOT that is twice every prediction is off by half, with that bias, and outside the interval."""
    points = [{**POINT, "concurrency": n, "silicon_tpot_ms": 1.0, "silicon_ttft_ms": 50.0} for n in (1, 2, 4, 8, 16)]
    table = read_table(t.write(tmp_path / "s.csv", points))
    found = served_errors([table], default_store())
    assert found["serving"]["refused"] == 0 and "loaded" not in found
    tpot, ttft = found["serving"]["groups"]
    assert (tpot["metric"], tpot["engine"], tpot["way"], tpot["rows"]) == ("tpot_ms", "vllm", "async", 5)
    assert ttft["metric"] == "ttft_ms" and ttft["fitted"] == "front end"
    assert tpot["bias"] == tpot["median"] > 1 and tpot["covered"] == 0 and np.isfinite(tpot["width"])


@pytest.mark.parametrize(
    ("kind", "group", "wanted"),
    [
        ("serving", ("tpot_ms", "vllm", "async", "h100", ""), "host work"),
        ("serving", ("ttft_ms", "vllm", "async", "h100", ""), ""),
        ("loaded", ("tpot_mean_ms", "vllm", "async", "mi300x", ""), "launch gap, share of peak"),
        ("loaded", ("tpot_mean_ms", "vllm", "async", "h100", ""), ""),
        ("loaded", ("ttft_mean_ms", "vllm", "async", "mi300x", ""), ""),
        ("loaded", ("tpot_p50_ms", "vllm", "async", "mi355x", ""), "launch gap, share of peak, launches of prompts"),
    ],
)
def test_a_group_says_what_was_fitted_on_it(kind: str, group: tuple[str, str, str, str, str], wanted: str) -> None:
    engines = {
        "vllm": {
            "host": {"async": {}},
            "architectures": {"CDNA3": {}, "CDNA4": {"prompt_launch_us": {"any": [1, 1, 1]}}},
        }
    }
    assert fitted_on(kind, group, engines) == wanted
