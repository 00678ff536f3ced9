"""All classes of kernels that have a time model. A class's module is imported when the class is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from archsim.timing.classes.model import KernelModel

CLASSES: Mapping[str, tuple[str, str]] = {
    "gemm": ("gemm", "Gemm"),
    "attn_prefill": ("attention", "AttnPrefill"),
    "attn_decode": ("attention", "AttnDecode"),
    "mla_prefill": ("mla", "MlaPrefill"),
    "mla_decode": ("mla", "MlaDecode"),
    "moe": ("moe", "Moe"),
    "nccl_all_reduce": ("collective", "AllReduce"),
    "nccl_all_gather": ("collective", "AllGather"),
    "nccl_reduce_scatter": ("collective", "ReduceScatter"),
    "nccl_alltoall": ("collective", "AllToAll"),
    "nccl_send_recv": ("collective", "SendRecv"),
    "engine_all_reduce": ("collective", "EngineAllReduce"),
    "norm": ("elementwise", "Norm"),
    "act": ("elementwise", "Act"),
    "rope": ("elementwise", "Rope"),
    "add": ("elementwise", "Add"),
    "elementwise": ("elementwise", "Elementwise"),
}
"""Name of a class -> module beside this one, and the class in it."""


class _KernelModels(Mapping[str, KernelModel]):
    """The models by name, one instance each."""

    def __init__(self) -> None:
        self._made: dict[str, KernelModel] = {}

    def __getitem__(self, op: str) -> KernelModel:
        if op not in self._made:
            module, name = CLASSES[op]
            self._made[op] = getattr(import_module(f"archsim.timing.classes.{module}"), name)()
        return self._made[op]

    def __contains__(self, op: object) -> bool:
        return op in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


MODELS: Mapping[str, KernelModel] = _KernelModels()
"""By the name of the class."""
