"""Known decoders against the search: would it have proposed their shapes, given size, context and a device?

    python benchmarks/accuracy/retrodiction.py

For each model the search is asked for the least loss and TPOT among dense decoders with its number of parameters
within 5 %, its tables and norms, on its tokens. The published shape counts as found where a candidate of the front is
within 0.02 nats and 10 % of TPOT.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import archsim
from archsim.candidates.known import shape_of

CASES = {
    "llama2-7b": ("a100-sxm-80gb", 2e12), "llama2-13b": ("a100-sxm-80gb", 2e12),
    "mistral-7b-v0.1": ("a100-sxm-80gb", 2e12), "yi-6b": ("a100-sxm-80gb", 3e12),
    "qwen2.5-0.5b": ("h100-sxm", 18e12), "qwen2.5-1.5b": ("h100-sxm", 18e12),
    "qwen2.5-3b": ("h100-sxm", 18e12), "qwen2.5-7b": ("h100-sxm", 18e12), "qwen2.5-14b": ("h100-sxm", 18e12),
    "qwen2.5-32b": ("h100-sxm", 18e12), "llama3-8b": ("h100-sxm", 15e12), "llama3.2-1b": ("h100-sxm", 9e12),
    "llama3.2-3b": ("h100-sxm", 9e12), "qwen3-0.6b": ("h100-sxm", 36e12), "qwen3-1.7b": ("h100-sxm", 36e12),
    "qwen3-4b": ("h100-sxm", 36e12), "qwen3-8b": ("h100-sxm", 36e12), "qwen3-14b": ("h100-sxm", 36e12),
    "qwen3-32b": ("h200", 36e12), "mistral-7b-v0.3": ("h100-sxm", 2e12), "phi-4": ("h100-sxm", 10e12),
    "smollm3-3b": ("h100-sxm", 11e12), "mistral-small-3.1-24b": ("h200", 8e12), "olmo2-7b": ("h100-sxm", 4e12),
}  # fmt: skip
"""Model -> a device of its time, and its training tokens as published (2e12 where none are)."""

CONTEXT = 8192


class Case(NamedTuple):
    """One model: whether its shape was found, and how far the front is ahead of it."""

    model: str
    found: bool
    nats: float
    tpot: float
    best: str


def retrodict(name: str, device: str, tokens: float) -> Case:
    """The published shape beside the front of its size."""
    model = archsim.load_model(name)
    numbers = shape_of(model)
    params = archsim.count(model).total
    answer = archsim.design(
        device, like=name, params=f"{0.95 * params:.6g}-{1.05 * params:.6g}", tokens=tokens, extrapolate=True,
        objective="loss,tpot", context=CONTEXT, weights="bf16", fix={"d_head": numbers["d_head"]},
    )  # fmt: skip
    own = archsim.estimate(model, device, devices=1, input_len=CONTEXT - 256, output_len=256, weights="bf16")
    law = answer.question.training.law.loss
    loss, tpot = law.of(params, tokens), own.metrics["tpot_s"]
    front = [(c.figures["loss"], c.figures["tpot_s"], c) for c in answer.front]
    near = min(front, key=lambda point: max(abs(loss - point[0]) / 0.02, abs(tpot / point[1] - 1) / 0.1))
    behind, slower = loss - near[0], tpot / near[1] - 1
    return Case(name, abs(behind) <= 0.02 and abs(slower) <= 0.1, behind, slower, near[2].label)


def main() -> None:
    """One line for each model, and the share that was found."""
    cases = []
    for name, (device, tokens) in CASES.items():
        try:
            case = retrodict(name, device, tokens)
        except archsim.ArchsimError as error:
            print(f"{name}: not asked: {error.message}")
            continue
        cases.append(case)
        word = "found" if case.found else "missed"
        shape = ", ".join(f"{k} {v}" for k, v in shape_of(archsim.load_model(name)).items())
        behind = f"{case.nats:+.4f} nats, TPOT {100 * case.tpot:+.1f} %"
        print(f"{case.model}: {word}, {behind}; published {shape}; front {case.best}")
    print(f"{np.mean([case.found for case in cases]):.0%} of {len(cases)}")


if __name__ == "__main__":
    main()
