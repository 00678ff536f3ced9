"""Memory of this process that lies in RAM: beside a baseline with libraries loaded, and at the peak of a call."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from torch.nn import functional

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
RESET_PEAK = "5"
"""What /proc/self/clear_refs takes to begin the peak of resident memory anew."""
COMPILER = "torch._inductor.compile_fx"
NUMBERS = 64


def resident_bytes() -> int | None:
    """Memory of this process that lies in RAM; None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return None


def baseline_bytes() -> int | None:
    """Resident memory before a model is built, with the libraries in it that passes of any model load: their code is
    no part of a model's memory.
    """
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(NUMBERS, NUMBERS, dtype=dtype)
        y = functional.linear(x, x)
        functional.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None])
    with suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own modules
        importlib.import_module(COMPILER)
    given_back()
    return resident_bytes()


def given_back() -> None:
    """Memory that nothing holds any more goes back to the system."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_resident_bytes(call: Callable[[], object]) -> int | None:
    """Most memory of this process that lay in RAM during a call; afterwards, where the system keeps no peak."""
    given_back()
    try:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        call()
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, ValueError, StopIteration):
        call()
        return resident_bytes()
