"""Where the time of a step goes, by part of the model: parts come from what an op is, never from names in its path."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import archsim
from archsim.base.errors import ArchsimError
from archsim.predict.model_parts import JOINTS, part_of
from archsim.render.groups import by_part
from archsim.spec.catalog import names
from archsim.timing.step_time import StepTime

NAMES = sorted(entry.name for entry in names("models") if entry.path is not None)


def phases(name: str, **options: int) -> list[StepTime]:
    """Prefill, and decode where there is one; nothing where no number of devices holds the model."""
    try:
        e = archsim.estimate(name, "h200", engine="vllm", **options)  # type: ignore[arg-type]
    except ArchsimError:
        return []
    return [phase for phase in (e.prefill, e.decode) if phase is not None]


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", NAMES[::6])
def test_parts_add_up(name: str) -> None:
    """The parts of a phase add up to its kernels."""
    for phase in phases(name):
        parts = by_part(phase)
        assert sum(part.expected_s for part in parts) == pytest.approx(sum(op.expected_s for op in phase.ops))
        assert sum(part.ideal_s for part in parts) == pytest.approx(sum(op.ideal_s for op in phase.ops))


def test_a_group_called_moe_has_attention() -> None:
    """Layers of DeepSeek-V3 stand in groups `dense` and `moe`: their attention is attention."""
    for phase in phases("deepseek-v3", devices=8):
        seen = {op.path: part_of(op, phase.name) for op in phase.ops}
        assert seen["moe.attention.o"] == seen["dense.attention.o"] == "attention projections"
        assert seen["moe.attention_norm()"] == JOINTS
        assert (seen["moe.moe.router"], seen["moe.moe.up"], seen["moe.moe.shared.up"], seen["dense.ffn.up"]) == (
            "router", "experts", "shared experts", "MLP"
        )  # fmt: skip


def test_names_of_layer_groups_mean_nothing(tmp_path: Path) -> None:
    """The same layers under other names have the same parts."""
    folder = Path(archsim.__file__).parents[1] / "specs" / "models"
    spec = yaml.safe_load((folder / "mixtral-8x7b.yaml").read_text("utf-8"))
    plain = archsim.estimate("mixtral-8x7b", "h200")
    for group in ("attention", "ffn", "head"):
        spec["layers"][0]["name"] = group
        (tmp_path / "named.yaml").write_text(yaml.safe_dump(spec))
        renamed = archsim.estimate(str(tmp_path / "named.yaml"), "h200")
        for a, b in ((renamed.prefill, plain.prefill), (renamed.decode, plain.decode)):
            assert a is not None and b is not None
            assert [part_of(op) for op in a.ops] == [part_of(op) for op in b.ops]
