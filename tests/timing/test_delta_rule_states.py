"""What the last-level cache holds of a delta rule's states."""

import pytest

from archsim import api
from archsim.graph.kernels import kernels_with_edges, traffics
from archsim.predict.estimate import pricer_for
from archsim.serving.step_times import ExactSteps
from archsim.spec.load import load_hardware
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.delta_rule import GdnDecode
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import lower_to_calls

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


def test_vllm_ran_decodes_beside_prompts_as_chunks_until_0_23() -> None:
    """Each is a chunk of the kernel of prompts there, and its states are copied out of the cache and back. Steps of
    decodes alone are the same.
    """
    before, since = (
        ExactSteps(pricer_for(api.estimate("qwen3.5-9b", "h100", engine=f"vllm@{version}")))
        for version in ("0.22", "0.23")
    )
    alone, mixed = (440, 440 * 480, ()), (440, 440 * 480, ((342, 0),))
    assert before.seconds(*alone) == since.seconds(*alone)
    states = 440 * 24 * 32 * 128 * 128 * 4
    assert before.seconds(*mixed) - since.seconds(*mixed) > 4 * states / 3.35e12
    classes = [{call.kernel_class for launch in steps_of(each, mixed) for call in launch} for each in (before, since)]
    assert "gdn_decode" not in classes[0] and "gdn_decode" in classes[1]


def test_drafts_and_last_tokens_beside_prompts() -> None:
    """Drafts that are verified keep a kernel of their own; the last few tokens of a prompt are a prompt where decodes
    run as chunks.
    """
    pricer = pricer_for(api.estimate("qwen3.5-9b", "h100", engine="vllm@0.22"))
    drafts = ExactSteps(pricer, new=3)
    assert "gdn_decode" in {c.kernel_class for launch in steps_of(drafts, (8, 8000, ((300, 0),))) for c in launch}
    last = steps_of(ExactSteps(pricer), (8, 8000, ((4, 900),)))
    assert "gdn_decode" not in {c.kernel_class for launch in last for c in launch}


def steps_of(steps: ExactSteps, step: tuple[int, int, tuple[tuple[int, int], ...]]) -> list[list[KernelCall]]:
    """The calls of a step by launch."""
    pricer, asked = steps.pricer, steps.step(*step)
    graph = pricer.graphs.rank(asked, pricer.plan)
    sequence = [kernel for kernel, _ in kernels_with_edges(graph)]
    moved = traffics(graph, pricer.timer.machine.cache_bytes)
    return [call.calls for call in lower_to_calls(sequence, moved, pricer.call_rules(asked))]
