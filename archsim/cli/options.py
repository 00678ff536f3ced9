"""Options that several commands share, each defined once, with the spellings of the serving engines."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from archsim.base.data_class import dataclass
from archsim.base.errors import ArchsimError
from archsim.cli.output import NARROWEST, WIDTH
from archsim.engines.names import DEFAULT_ENGINE as DEFAULT_ENGINE
from archsim.spec.catalog import names


class Layout(StrEnum):
    """Output format."""

    table = "table"
    md = "md"
    json = "json"
    csv = "csv"


class RankedBy(StrEnum):
    """What plans on equally many devices are ranked by."""

    latency = "latency"
    throughput = "throughput"


class Logits(StrEnum):
    """Positions that the output head is computed at."""

    last = "last"
    all = "all"


class By(StrEnum):
    """What kernels are summed over; or the whole at several contexts."""

    part = "part"
    op = "op"
    block = "block"
    phase = "phase"
    kind = "kind"
    context = "context"


def tokens(text: str | int) -> int:
    """A number of tokens: `2048`, `2k` or `2K` (x 1024)."""
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*([kKmM]?)\s*", str(text))
    if match is None:
        raise typer.BadParameter(f"{str(text)[:40]!r} is not a number of tokens; write 2048 or 32k (x 1024).")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]


def models(incomplete: str) -> list[str]:
    """Shell completion: models whose name begins so, from the catalog's file names."""
    return _names("models", incomplete)


def devices(incomplete: str) -> list[str]:
    """Shell completion: devices whose name begins so."""
    return _names("hw", incomplete)


def formats(incomplete: str) -> list[str]:
    """Shell completion: number formats whose name begins so."""
    return _names("formats", incomplete)


def _names(kind: str, incomplete: str) -> list[str]:
    try:
        return [entry.name for entry in names(kind) if entry.path and entry.name.startswith(incomplete)]  # type: ignore[arg-type]
    except ArchsimError:
        return []


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", autocompletion=models, help="Catalog name, alias, Hugging Face id, or path to a spec."
    ),
]
Via = Annotated[
    str | None,
    typer.Option(metavar="transformers", help="Trace transformers' own class of a model type or config.json."),
]


def via_library(model: str, via: str | None) -> str:
    """The spelling of a model that `--via` asks for. Raises BadParameter for a library that is not known."""
    if via is None:
        return model
    if via.lower() not in ("transformers", "hf"):
        raise typer.BadParameter(f"{via[:40]!r} is not known; models are traced via transformers.")
    return f"transformers:{model}"


Device = Annotated[
    str,
    typer.Option("--hw", "--gpu", metavar="HW", autocompletion=devices, help="Device: catalog name, alias or path."),
]
Devices = Annotated[str, typer.Option(metavar="N|auto", help="Devices; auto: the fewest that hold it.")]
TP = ("--tp", "-tp", "--tensor-parallel-size", "--tp-size")
PP = ("--pp", "-pp", "--pipeline-parallel-size", "--pp-size")
EP = ("--ep", "-ep", "--ep-size")
DP = ("--dp", "-dp", "--data-parallel-size", "--dp-size")
Tp = Annotated[int | None, typer.Option(*TP, min=1, metavar="N", help="Tensor parallel.")]
Pp = Annotated[int | None, typer.Option(*PP, min=1, metavar="N", help="Pipeline stages.")]
Ep = Annotated[int | None, typer.Option(*EP, min=1, metavar="N", help="Expert parallel degree; divides tp x dp.")]
Dp = Annotated[int | None, typer.Option(*DP, min=1, metavar="N", help="Attention replicas.")]
Objective = Annotated[
    RankedBy | None,
    typer.Option(
        help="Of several plans on the same devices take the one with the shortest decode step (latency, the default) "
        "or with most tokens per second at full load (throughput)."
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME[@VERSION]", help="Serving engine: generic, vllm, sglang, trtllm, llamacpp, hf and others."
    ),
]
ByWhat = Annotated[
    By | None, typer.Option("--by", help="A table of kernels summed over this, or of contexts, in place of the page.")
]
Batch = Annotated[int, typer.Option("--batch", "--batch-size", min=1, metavar="N", help="Sequences at once.")]
InputLen = Annotated[
    int, typer.Option("--input-len", "--isl", parser=tokens, metavar="N", help="Prompt tokens; 32k means x 1024.")
]
Image = Annotated[
    str | None,
    typer.Option(
        "--image", metavar="WxH[xN]", help="Images of each request, in pixels: 1024x768, or 1024x768x4 for four."
    ),
]
Audio = Annotated[
    str | None,
    typer.Option(
        "--audio", metavar="SECONDS[xN]", help="Audio clips of each request, in seconds: 30, or 30x4 for four."
    ),
]
SourceLen = Annotated[
    int | None,
    typer.Option(
        "--source-len", parser=tokens, metavar="N", help="Source tokens of an encoder-decoder (default: the prompt's)."
    ),
]
Without = Annotated[
    str, typer.Option("--without", metavar="TOWER,...", help="Encoders that are not in memory: vision, audio.")
]
OutputLen = Annotated[
    int, typer.Option("--output-len", "--osl", parser=tokens, metavar="N", help="Tokens to generate; 1k means x 1024.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", "--quantization", metavar="FMT", autocompletion=formats,
        help="Weight format (see `archsim list formats`). Default: the checkpoint's own.",
    ),
]  # fmt: skip
KvDtype = Annotated[
    str | None, typer.Option("--kv-cache-dtype", "--kv", metavar="FMT", help="Cache format. Default: 16 bits.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the spec, such as attention.n_kv_heads=4."),
]


class Theme(StrEnum):
    """Colours of a drawing."""

    auto = "auto"
    light = "light"
    dark = "dark"


Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw the architecture into an SVG file; `-`: to stdout.")
]
Themed = Annotated[
    Theme, typer.Option("--theme", help="Colours of --svg: `auto` follows the reader's system; paper is always light.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
Format = Annotated[Layout, typer.Option("--format", help="Output format.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="List every assumption.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only the answer.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour; NO_COLOR does the same.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How an answer is wanted."""

    json: AsJson = False
    format: Format = Layout.table
    verbose: Verbose = False
    quiet: Quiet = False
    no_color: NoColor = False

    @property
    def layout(self) -> Layout:
        """What it is written as; `--json` comes first."""
        return Layout.json if self.json else self.format


# ------------------------------------------------------------------ options of all commands
def _set_width(columns: int | None) -> None:
    WIDTH.set(columns)


Width = Annotated[
    int | None,
    typer.Option(
        "--width", min=NARROWEST, metavar="N", callback=_set_width, expose_value=False,
        help="Columns of a line. Default: the terminal's; 100 in files and pipes.",
    ),
]  # fmt: skip


Hub = Annotated[
    bool,
    typer.Option(
        "--hub", expose_value=False,
        help="Fetch the config.json of an unknown ORG/NAME from the Hugging Face Hub (with huggingface_hub).",
    ),
]  # fmt: skip


def everywhere(width: Width = None, hub: Hub = False) -> None:
    """Does nothing: its options are added to those of every command."""
