"""All classes of kernels that have a time model."""

from __future__ import annotations

from collections.abc import Mapping

from archsim.cost.timing.gemm import Gemm
from archsim.cost.timing.model import Model

MODELS: Mapping[str, Model] = {model.op: model for model in (Gemm(),)}
"""By the name of the class."""
