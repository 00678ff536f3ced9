"""Options of commands that set training runs beside each other: those of `train`, each taking several values."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.data_class import dataclass

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject


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
Zero = Annotated[str | None, typer.Option("--zero", metavar="0,1,2,3", help=f"{_OF} what data ranks shard.")]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is looked at, and the options of training runs."""

    phase: Phased = Phase.inference
    micro_batch: MicroBatch = None
    global_batch: GlobalBatch = None
    seq_len: SeqLen = None
    zero: Zero = None
    recompute: Recompute = None
    recipe: Recipe = None
    optimizer: Optimizer = None
    stack: Stack = None
    method: Method = None
    tokens: Tokens = None

    def options(self) -> JsonObject:
        """The options of runs; None where one is not given."""
        return {
            "micro_batch": self.micro_batch, "global_batch": self.global_batch, "seq_len": self.seq_len,
            "zero": self.zero, "recompute": self.recompute, "recipe": self.recipe, "optimizer": self.optimizer,
            "stack": self.stack, "method": self.method, "tokens": self.tokens,
        }  # fmt: skip
