"""Memory of this process: what lies in RAM beside a baseline, at the peak of a call, and what the allocator keeps."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch.nn import functional

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
RESET_PEAK = "5"
"""What /proc/self/clear_refs takes to begin the peak of resident memory anew."""
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's `mallopt`."""
LARGEST = 1 << 30
USUAL = 32 << 20
"""Where glibc's own threshold ends after large blocks have been freed (DEFAULT_MMAP_THRESHOLD_MAX)."""
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


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """The allocator keeps what is freed meanwhile, as jemalloc and tcmalloc do. glibc gives large blocks back to the
    system, and which depends on what was freed before: fresh pages cost a step of training more than its arithmetic,
    and a scan of prompts half as much again. Nothing happens where there is no `mallopt`.
    """
    _set_thresholds(LARGEST, 2**31 - 1)
    try:
        yield
    finally:
        _set_thresholds(USUAL, 2 * USUAL)


def _set_thresholds(mapped: int, trimmed: int) -> None:
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, mapped)
        library.mallopt(TRIM_THRESHOLD, trimmed)
        if mapped == USUAL:
            library.malloc_trim(0)
