"""Writes the example reports: `python reports/examples/make.py [NAME...]`, all of them by default.

Each is a page of what `EXAMPLES` says that takes plotly.js from its servers; two runs write the same bytes.
"""

from __future__ import annotations

import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))  # the archsim that these examples stand beside

from archsim import api  # noqa: E402

ZOO = ("mha", "gqa", "mqa", "mla", "windowed")

MILESTONES = (
    "transformer-big", "gpt2-xl", "gpt3-175b", "llama2-70b", "mixtral-8x7b", "deepseek-v3", "kimi-k2",
)  # fmt: skip
"""From the encoder-decoder of 2017 to the mixture of experts of 2025; 512 tokens are what the first was made for."""

EXAMPLES: dict[str, tuple[tuple[str, ...], str, dict[str, Any]]] = {
    "llama2-70b-devices": (("llama2-70b",), "a100,h100,h200,mi300x,tpu-v5p", {"batch": 4}),
    "attention-zoo-128k": (tuple(f"attention-{kind}.yaml" for kind in ZOO), "h200", {"input_len": 131072}),
    "dense-against-moe": (
        ("llama3.3-70b", "qwen2.5-72b", "qwen3-235b-a22b", "gpt-oss-120b"), "h200", {"batch": 16},
    ),
    "formats-on-24gb": (
        ("qwen2.5-14b",), "rtx-4090",
        {"weights": "bf16,fp8,awq_int4,gguf_q8_0,gguf_q4_k_m", "devices": 1, "input_len": 4096},
    ),
    "evolution-2017-to-2025": (MILESTONES, "h200", {"input_len": 512}),
}  # fmt: skip
"""File name -> models, devices and options."""


def page(name: str) -> str:
    """The text of one example."""
    models, hw, options = EXAMPLES[name]
    with chdir(FOLDER):  # the examples' own specs are named by their files
        found = api.report(
            list(models), hw, plotlyjs="cdn", command=f"python reports/examples/make.py {name}", **options
        )
    return str(found.html)


def main(names: list[str]) -> None:
    """Writes the examples that are named."""
    for name in names or EXAMPLES:
        (FOLDER / f"{name}.html").write_text(page(name), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
