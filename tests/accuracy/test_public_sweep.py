"""What launch scripts of the public sweep say of its servers reaches the prediction of a point, and of no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from archsim.accuracy.public_sweep import READ_AS, is_of_sweep, launches
from archsim.accuracy.question import Run, weights_of
from archsim.accuracy.serving import point_of
from archsim.accuracy.times import RunTimes
from archsim.engines.overhead import ServerFlags
from archsim.serving.steady_state import ServedLoad
from archsim.spec.load import load_model


def point(model: str, engine: str, system: str, isl: int = 1024, osl: int = 1024, tp: int = 4, **more: object) -> Run:
    row = {"model_path": model, "backend": engine, "system": system, "tp_size": tp, "concurrency": 8}
    return point_of({**row, "isl": isl, "osl": osl, "precision": "fp8", **more})


def test_models_of_the_scripts_are_in_the_catalog() -> None:
    for launch in launches():
        assert load_model(launch.model).name == launch.model and launch.script


@pytest.mark.parametrize(
    ("run", "kv", "whole_graph", "wait_steps"),
    [
        (point("meta-llama/Llama-3.1-70B", "vllm", "b200_sxm"), "fp8", True, 0),
        (point("meta-llama/Llama-3.1-70B", "vllm", "h100_sxm"), None, False, 0),
        (point("meta-llama/Llama-3.1-70B", "vllm", "b200_sxm", kv_dtype="bf16"), "bf16", True, 0),
        (point("meta-llama/Llama-3.1-70B", "vllm", "b200_sxm", osl=512), None, False, 0),
        (point("meta-llama/Llama-3.1-70B", "trtllm", "b200_sxm"), "fp8", False, 20),
        (point("meta-llama/Llama-3.1-70B", "trtllm", "b200_sxm", tp=8), "fp8", False, 0),
        (point("meta-llama/Llama-3.1-70B", "trtllm", "b200_sxm", isl=8192), "fp8", False, 0),
        (point("openai/gpt-oss-120b", "trtllm", "b200_sxm"), "fp8", False, 0),
    ],
)  # fmt: skip
def test_scripts_say_what_rows_do_not(run: Run, kv: str | None, whole_graph: bool, wait_steps: int) -> None:
    assert (run.kv, run.flags.whole_graph, run.flags.wait_steps) == (kv, whole_graph, wait_steps)


def test_the_day_tells_the_release_of_an_image() -> None:
    """vLLM's images are releases, TensorRT-LLM's are not; before 0.14 its scripts ask for asynchronous scheduling."""
    day = {"measured": "2025-10-29"}
    run = point("meta-llama/Llama-3.1-70B", "vllm", "h100_sxm", **day)
    assert (run.engine, run.flags.host) == ("vllm@0.11.0", "async_flag")
    assert point("meta-llama/Llama-3.1-70B", "trtllm", "b200_sxm", **day).engine == "trtllm"
    assert point("meta-llama/Llama-3.1-70B", "vllm", "h100_sxm", backend_version="0.15.1", **day).flags.host == ""
    assert point("meta-llama/Llama-3.1-70B", "vllm", "h100_sxm", osl=512, **day).engine == "vllm"


def test_points_of_an_engines_own_sweep_are_of_one_length() -> None:
    """They lie in a folder by device and version, though some have the lengths of the public sweep."""
    own = "source_file=h100_sxm/vllm/0.12.0/Qwen_Qwen3-32B.csv"
    assert is_of_sweep(1024, 1024, "source_file=2026-04-06.csv") and not is_of_sweep(1024, 1024, own)
    run = point("Qwen/Qwen3-32B", "vllm", "h100_sxm", origin=own)
    assert run.one_length and (run.isl, run.osl) == (1024, 1024) and READ_AS not in run.notes
    assert READ_AS in point("Qwen/Qwen3-32B", "vllm", "h100_sxm").notes


def test_a_word_for_4_bit_floats_is_the_checkpoints_own() -> None:
    """Tables call gpt-oss `nvfp4`, which would quantise its 16-bit projections too; an int4 checkpoint is another."""
    assert weights_of("openai/gpt-oss-120b", "nvfp4") is None
    assert weights_of("openai/gpt-oss-120b", "mxfp4_mxfp8") == "mxfp4_mxfp8"
    assert weights_of("meta-llama/Llama-3.1-70B", "nvfp4") == "nvfp4"


def test_held_prompts_wait_for_twenty_steps() -> None:
    """TTFT is later by these steps; the first in line waits for all of them, those that come meanwhile for half."""
    held = point("meta-llama/Llama-3.1-70B", "trtllm", "b200_sxm")
    times = RunTimes()
    later, usual = (times.served(run, 4, 922, 922) for run in (held, replace(held, flags=ServerFlags())))
    assert later.ttft is not None and usual.ttft is not None
    assert 18 < (later.ttft.expected - usual.ttft.expected) / later.tpot.expected < 20
    alone, few, many = (
        ServedLoad(concurrency=n, running=n, input_len=922, output_len=922, wait_steps=20).mean_wait_steps
        for n in (1, 2, 128)
    )
    assert 12 < many < 14 and 19 < few < 20
    assert alone == 0  # TensorRT-LLM waits only where a scheduled step has answers to go on with
