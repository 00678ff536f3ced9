"""Options of `archsim sweep`: those of `estimate`, each taking several values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archsim.base.data_class import dataclass
from archsim.cli.options import DP, EP, PP, TP, devices, formats, models

RANGE = "1,8,32 or 1-256+1 (step) or 1-256*2 (factor)"

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...", autocompletion=models, help="Catalog names, aliases, Hugging Face ids, or paths."
    ),
]
DevicesList = Annotated[
    str, typer.Option("--hw", "--gpu", metavar="HW,...", autocompletion=devices, help="Devices: names, aliases, paths.")
]
Counts = Annotated[
    str, typer.Option("--devices", metavar="RANGE|auto", help="Devices; auto: the fewest that hold each point.")
]
Batch = Annotated[str, typer.Option("--batch", "--batch-size", metavar="RANGE", help=f"Sequences at once: {RANGE}.")]
InputLen = Annotated[
    str, typer.Option("--input-len", "--isl", metavar="RANGE", help="Prompt tokens, as a range; 32k means x 1024.")
]
OutputLen = Annotated[
    str, typer.Option("--output-len", "--osl", metavar="RANGE", help="Tokens to generate, as a range.")
]
Tp = Annotated[str | None, typer.Option(*TP, metavar="RANGE", help="Tensor parallel degrees.")]
Pp = Annotated[str | None, typer.Option(*PP, metavar="RANGE", help="Pipeline stages.")]
Ep = Annotated[str | None, typer.Option(*EP, metavar="RANGE", help="Expert parallel degrees; divide tp x dp.")]
Dp = Annotated[str | None, typer.Option(*DP, metavar="RANGE", help="Attention replicas.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Parallel degrees, each a range."""

    tp: Tp = None
    pp: Pp = None
    ep: Ep = None
    dp: Dp = None

    def options(self) -> dict[str, str | None]:
        """By name; None where one is not given."""
        return {"tp": self.tp, "pp": self.pp, "ep": self.ep, "dp": self.dp}


Weights = Annotated[
    str | None,
    typer.Option("--weights", "--quantization", metavar="FMT,...", autocompletion=formats, help="Weight formats."),
]
KvDtypes = Annotated[str | None, typer.Option("--kv-cache-dtype", "--kv", metavar="FMT,...", help="Cache formats.")]
Engines = Annotated[str, typer.Option("--engine", metavar="NAME[@VERSION],...", help="Serving engines.")]
Where = Annotated[
    str | None, typer.Option("--where", metavar="CONDITION", help="Keep points such as 'fits and ttft_s < 0.5'.")
]
Pareto = Annotated[
    str | None, typer.Option("--pareto", metavar="COLUMN,...", help="Keep what no other point beats in all of these.")
]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="COLUMN,...", help="Compute and write only these columns.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write every point to a .csv, .json or .parquet file.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Write the page with a chart as HTML (see --format html).")
]
