"""Options of `archsim fit`, with the spellings of the serving engines."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from archsim.base.errors import ArchsimError
from archsim.cli.options import devices, formats, models, tokens


def rate(text: str | float) -> float:
    """Bytes per second: `80 GB/s`."""
    from archsim.base.units import parse_quantity

    try:
        return float(parse_quantity(text, "B/s"))
    except ArchsimError:
        raise typer.BadParameter(f"{str(text)[:40]!r} is not a bandwidth; write `80 GB/s`.") from None


def layers(text: str | int) -> int:
    """A number of layers, or `all`."""
    if str(text).strip().lower() == "all":
        return 10**6
    if not str(text).strip().isdecimal():
        raise typer.BadParameter(f"{str(text)[:40]!r} is not a number of layers; write 24 or all.")
    return int(str(text)[:9])


def byte_count(text: str | int) -> int:
    """A number of bytes: 8589934592, 8G (binary) or 8g (decimal) as in vLLM, or `8 GiB`."""
    from archsim.base.units import parse_quantity

    match = re.fullmatch(r"\s*(\d{1,18})\s*([kKmMgGtT]?)\s*", str(text))
    if match:
        power = " kmgt".index(match[2].lower() or " ")
        return int(match[1]) * int((1024 if match[2].isupper() else 1000) ** power)
    try:
        return int(parse_quantity(text, "B"))
    except ArchsimError:
        raise typer.BadParameter(f"{str(text)[:40]!r} is not a number of bytes; write 8G or `8 GiB`.") from None


ModelAsked = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL", autocompletion=models, help="Catalog name, alias, Hugging Face id, or path; all without one."
    ),
]
DevicesAsked = Annotated[
    list[str],
    typer.Option(
        "--hw", "--gpu", metavar="HW[,HW]", autocompletion=devices,
        help="Device: catalog name, alias or path; several give a table.",
    ),
]  # fmt: skip
Devices = Annotated[
    str | None,
    typer.Option(metavar="N|auto", help="Devices; auto: the fewest that hold it. Default: one, or tp x pp x dp."),
]
Length = Annotated[
    int | None,
    typer.Option(
        "--max-model-len", "--context", "--ctx", "--ctx-size", "-c", "--context-length", "--max-seq-len", "--num-ctx",
        parser=tokens, metavar="N", help="Tokens of the request that must fit; 32k means x 1024.",
    ),
]  # fmt: skip
Seqs = Annotated[
    int | None,
    typer.Option(
        "--max-num-seqs", "--max-running-requests", "--max-batch-size", "--parallel", "-np", min=1, metavar="N",
        help="Most sequences at once.",
    ),
]  # fmt: skip
StepTokens = Annotated[
    int | None,
    typer.Option(
        "--max-num-batched-tokens", "--chunked-prefill-size", "--max-num-tokens", "--ubatch-size", "-ub",
        parser=tokens, metavar="N", help="Most tokens of one step.",
    ),
]  # fmt: skip
Utilization = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization", "--mem-util", "--free-gpu-memory-fraction", metavar="F",
        help="The engine's memory fraction; its meaning depends on the engine.",
    ),
]  # fmt: skip
Static = Annotated[
    float | None, typer.Option("--mem-fraction-static", metavar="F", help="The same under SGLang's name.")
]
Block = Annotated[
    int | None,
    typer.Option(
        "--block-size", "--page-size", "--tokens-per-block", min=1, metavar="N", help="Tokens of a cache page."
    ),
]
Eager = Annotated[bool, typer.Option("--enforce-eager", "--disable-cuda-graph", help="No CUDA or HIP graphs.")]
Check = Annotated[bool, typer.Option("--check", "--fail-if-not-fit", help="Exit code 1 if it does not fit.")]
Command = Annotated[
    bool, typer.Option("--command", help="Print only the command line that starts the engine with these settings.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", "--quantization", "--quant", metavar="FMT[,FMT]", autocompletion=formats,
        help="Weight format (see `archsim list formats`); several give a table. Default: the checkpoint's own.",
    ),
]  # fmt: skip
CacheK = Annotated[
    str | None, typer.Option("--cache-type-k", "-ctk", metavar="FMT", help="Format of keys alone, as in llama.cpp.")
]
CacheV = Annotated[str | None, typer.Option("--cache-type-v", "-ctv", metavar="FMT", help="Format of values alone.")]
DpAttention = Annotated[
    bool, typer.Option("--enable-dp-attention", help="As in SGLang: --tp devices in all, --dp attention replicas.")
]
Experts = Annotated[bool, typer.Option("--enable-expert-parallel", help="Expert parallel over all of tp x dp.")]
Layers = Annotated[
    int | None,
    typer.Option(
        "--n-gpu-layers", "--gpu-layers", "-ngl", parser=layers, metavar="N|all",
        help="Layers on the device, the rest in host memory.",
    ),
]  # fmt: skip
CpuMoe = Annotated[bool, typer.Option("--cpu-moe", "-cmoe", help="Routed experts in host memory.")]
CpuMoeLayers = Annotated[
    int, typer.Option("--n-cpu-moe", "-ncmoe", min=0, metavar="N", help="Experts of the first N layers in host memory.")
]
GpuExperts = Annotated[
    int | None,
    typer.Option(
        "--num-gpu-experts", "--kt-num-gpu-experts", min=0, metavar="N",
        help="Routed experts of each layer on the devices, the others in host memory, as in KTransformers.",
    ),
]  # fmt: skip
CacheBytes = Annotated[
    int | None,
    typer.Option(
        "--kv-cache-memory-bytes", parser=byte_count, metavar="BYTES",
        help="Bytes of the cache on each device, in place of what the memory fraction leaves; 8G is GiB.",
    ),
]  # fmt: skip
Visible = Annotated[
    int | None,
    typer.Option(
        "--visible-memory", parser=byte_count, metavar="BYTES",
        help="Memory of each device that a process sees, such as `8 GiB`, if not the usual (WSL, a part of it).",
    ),
]  # fmt: skip
CpuOffload = Annotated[
    float, typer.Option("--cpu-offload-gb", min=0, metavar="GIB", help="Of each device's weights, in host memory.")
]
CacheOffload = Annotated[
    float, typer.Option("--kv-offloading-size", min=0, metavar="GIB", help="Host memory for pages of the cache.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--override-tensor", "-ot", metavar="PATTERN=CPU", help="Tensors in host memory, by their names in GGUF files."
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--split-mode", "-sm", metavar="MODE",
        help="How llama.cpp shares a model among devices: layer, row, tensor or none.",
    ),
]  # fmt: skip
Proportions = Annotated[
    str | None, typer.Option("--tensor-split", "-ts", metavar="N,N", help="Proportions in which devices share it.")
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft-model", "--model-draft", "-md", "--spec-draft-model", metavar="MODEL",
        help="Draft model of speculative decoding, in memory beside the model.",
    ),
]  # fmt: skip
DraftWeights = Annotated[
    str | None, typer.Option("--draft-weights", metavar="FMT", help="Its format. Default: its checkpoint's own.")
]
HostRate = Annotated[
    float | None,
    typer.Option("--host-bandwidth", parser=rate, metavar="RATE", help="Bandwidth of host memory, such as `80 GB/s`."),
]
Loras = Annotated[int, typer.Option("--max-loras", min=0, metavar="N", help="Slots for adapters.")]
LoraRank = Annotated[int, typer.Option("--max-lora-rank", min=1, metavar="N", help="Largest rank of an adapter.")]
Parts = Annotated[str, typer.Option("--with", metavar="PART,...", help="Optional parts: vision, audio, mtp.")]
