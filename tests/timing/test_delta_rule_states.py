"""What the last-level cache holds of a delta rule's states."""

import pytest

from archsim.spec.load import load_hardware
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.delta_rule import GdnDecode
from archsim.timing.device import DeviceRates

MODEL = GdnDecode()
DIMS = {"batch": 64.0, "seq_q": 1.0, "heads": 16.0, "kv_heads": 4.0, "head_dim": 128.0}


def test_one_token_writes_the_state_where_it_was_read() -> None:
    """67 MB of states fit into 96 MB, although as much is written as read; drafts keep a state each."""
    call = KernelCall("gdn_decode", "bf16", dims=DIMS)
    states = 64 * 16 * 128 * 128 * 4
    assert MODEL.held_bytes(call) - MODEL.activation_bytes(call) == pytest.approx(states)
    drafts = call._replace(dims={**DIMS, "seq_q": 3.0})
    assert MODEL.held_bytes(drafts) - MODEL.activation_bytes(drafts) == pytest.approx(4 * states)


def test_a_table_finds_states_of_two_thirds_of_the_cache_in_it() -> None:
    """Timed over and over on an L40S, 1,024 states of 64 KiB are not read from memory."""
    machine = DeviceRates(load_hardware("l40s"))
    constants = {name: one.usual for name, one in MODEL.constants.items()} | {"cached": 6.0}
    row, step = (KernelCall("gdn_decode", "bf16", dims={**DIMS, **more}) for more in ({"warm": 1.0}, {}))
    assert MODEL.formula(row, machine, constants) < 0.3 * MODEL.formula(step, machine, constants)
