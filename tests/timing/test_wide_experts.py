"""One rank of a wide group of experts."""

import pytest

from archsim.spec.load import load_hardware
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.wide_experts import MoeWideEp
from archsim.timing.device import DeviceRates

MODEL = MoeWideEp()


def call(m: float, ep: float, kernel: str) -> KernelCall:
    """A row of a table of DeepSeek-V3's experts."""
    dims = {"m": m, "experts": 256.0, "topk": 8.0, "hidden": 7168.0, "inter": 2048.0, "ep": ep}
    return MODEL.prepare(KernelCall("moe_wideep", "fp8_block", kernel=kernel, dims=dims))


@pytest.mark.parametrize(
    ("m", "ep", "hits"), [(512, 2, 16), (1024, 2, 32), (2048, 4, 32), (4096, 8, 32), (8192, 8, 32)]
)
def test_rows_dealt_in_blocks_hit_as_many_experts_as_there_are_blocks(m: float, ep: float, hits: float) -> None:
    """128 rows go to one expert before the next gets any, until all that a rank holds have some."""
    assert MODEL.part(call(m, ep, "deepepmoe context/uniform")).hits == pytest.approx(hits)


def test_rows_dealt_evenly_spread_as_far_as_they_go() -> None:
    """In the layout without blocks each row is another expert's."""
    assert MODEL.part(call(8, 4, "deepepmoe generation/uniform")).hits == pytest.approx(16)
    assert MODEL.part(call(64, 4, "deepepmoe generation/uniform")).hits == pytest.approx(64)


def test_a_rank_combines_its_own_tokens() -> None:
    """With as many rows of its own, a rank of 256 takes no longer for the tokens of all others."""
    machine = DeviceRates(load_hardware("h100-sxm"))
    constants = {name: one.usual for name, one in MODEL.constants.items()} | {"foreign": 1e-4, "spread": 0.01}
    few, many = (call(m, ep, "deepepmoe generation/uniform") for m, ep in ((2048, 16), (32768, 256)))
    assert MODEL.part(few).rows == pytest.approx(MODEL.part(many).rows)
    assert MODEL.formula(many, machine, constants) < MODEL.formula(few, machine, constants)
