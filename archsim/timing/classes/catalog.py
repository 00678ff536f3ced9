"""All classes of kernels that have a time model: every subclass of `KernelModel` in these modules that has a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from archsim.timing.classes import (
    attention,
    attention_modules,
    batched_product,
    collective,
    convolution,
    cpu,
    delta_rule,
    elementwise,
    encoder_attention,
    expert_exchange,
    gemm,
    hyper_connections,
    mla,
    mlp,
    moe,
    sparse_attention,
    wide_experts,
)
from archsim.timing.classes.model import KernelModel

MODULES = (
    *(attention, attention_modules, batched_product, collective, convolution, cpu, delta_rule, elementwise),
    *(encoder_attention, expert_exchange, gemm, hyper_connections, mla, mlp, moe, sparse_attention, wide_experts),
)
"""Where time models are defined; importing them makes the subclasses known."""


def _named(base: type) -> Iterator[type[KernelModel]]:
    """Subclasses at any depth that name a class of kernels of their own."""
    subclasses: Sequence[type[KernelModel]] = base.__subclasses__()
    for cls in subclasses:
        if "kernel_class" in vars(cls) and cls.__module__ in {module.__name__ for module in MODULES}:
            yield cls
        yield from _named(cls)


def _by_name() -> dict[str, KernelModel]:
    """One instance of each. Raises ValueError where two have one name."""
    models: dict[str, KernelModel] = {}
    for cls in _named(KernelModel):
        if cls.kernel_class in models:
            raise ValueError(f"two time models are called {cls.kernel_class!r}")
        models[cls.kernel_class] = cls()
    return models


MODELS: Mapping[str, KernelModel] = _by_name()
"""By the name of the class in tables."""
