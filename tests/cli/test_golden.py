"""Whole pages, as files that a reader of a change can judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PAGES = {
    "estimate-llama2-70b-h100.txt": ("estimate", "llama2-70b", "--hw", "h100"),
    "estimate-mixtral-8x7b-h100.txt": ("estimate", "mixtral-8x7b", "--hw", "h100", "--batch", "8"),
    "estimate-bert-base-t4.txt": ("estimate", "bert-base", "--hw", "t4", "--input-len", "512", "--batch", "16"),
    "explain-llama2-70b-kv_cache.txt": ("explain", "llama2-70b", "kv_cache"),
    "count-llama2-70b.txt": ("count", "llama2-70b"),
}


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, archsim: Any, golden: Callable[[str, str], None]) -> None:
    """The page is the golden one; two runs are the same bytes."""
    first = archsim(*PAGES[name])
    assert first.code == 0
    assert archsim(*PAGES[name]).out == first.out
    golden(name, first.out)
