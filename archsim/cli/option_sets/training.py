"""Options of commands that set training runs beside each other: those of `train`, each taking several values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Phase(StrEnum):
    """What is looked at."""

    inference = "inference"
    train = "train"


_OF = "With --phase train:"

Phased = Annotated[Phase, typer.Option("--phase", help="Inference, or training runs as `archsim train` answers them.")]
MicroBatch = Annotated[str | None, typer.Option("--micro-batch", metavar="RANGE", help=f"{_OF} sequences of one pass.")]
GlobalBatch = Annotated[
    str | None, typer.Option("--global-batch", metavar="RANGE", help=f"{_OF} sequences of one step.")
]
SeqLen = Annotated[
    str | None, typer.Option("--seq-len", metavar="RANGE", help=f"{_OF} tokens of a sequence; 8k means x 1024.")
]
Zero = Annotated[str | None, typer.Option("--zero", metavar="0,1,2,3", help=f"{_OF} what data ranks share out.")]
Recompute = Annotated[
    str | None, typer.Option("--recompute", metavar="WHAT,...", help=f"{_OF} none, selective, full or every:N.")
]
Recipe = Annotated[
    str | None, typer.Option("--recipe", metavar="NAME,...", help=f"{_OF} formats: bf16, fp8-block, ...")
]
Optimizer = Annotated[
    str | None, typer.Option("--optimizer", metavar="NAME,...", help=f"{_OF} adamw, muon, adamw-8bit, ...")
]
Stack = Annotated[
    str | None, typer.Option("--stack", metavar="NAME,...", help=f"{_OF} frameworks: megatron-core, torchtitan, ...")
]
Method = Annotated[str | None, typer.Option("--method", metavar="NAME,...", help=f"{_OF} full, lora or qlora.")]
Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="D", help=f"{_OF} tokens of the whole run, such as 1.4T.")
]
TrainContext = Annotated[
    Phase, typer.Option("--phase", help="Figures of inference, or what training takes: FLOPs of a token, memory, time.")
]
