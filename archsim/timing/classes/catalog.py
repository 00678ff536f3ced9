"""All classes of kernels that have a time model."""

from __future__ import annotations

from collections.abc import Mapping

from archsim.timing.classes.attention import AttnDecode, AttnPrefill
from archsim.timing.classes.collective import AllGather, AllReduce, AllToAll, EngineAllReduce, ReduceScatter, SendRecv
from archsim.timing.classes.elementwise import Act, Add, Elementwise, Norm, Rope
from archsim.timing.classes.gemm import Gemm
from archsim.timing.classes.mla import MlaDecode, MlaPrefill
from archsim.timing.classes.model import KernelModel
from archsim.timing.classes.moe import Moe

MODELS: Mapping[str, KernelModel] = {
    model.kernel_class: model
    for model in (
        Gemm(), AttnPrefill(), AttnDecode(), MlaPrefill(), MlaDecode(), Moe(), AllReduce(), AllGather(),
        ReduceScatter(), AllToAll(), SendRecv(), EngineAllReduce(), Norm(), Act(), Rope(), Add(), Elementwise(),
    )
}  # fmt: skip
"""By the name of the class in tables, one instance each."""
