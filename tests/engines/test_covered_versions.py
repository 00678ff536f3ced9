"""The page of engines says which documents there are, and at which version."""

from __future__ import annotations

import re
from pathlib import Path

from archsim.spec.catalog import files
from archsim.spec.engine import load_engine

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


def test_the_page_lists_every_engine_at_its_version() -> None:
    """A row for each document but the generic one."""
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \| ([^|]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    known = {name: (load_engine(name).title, load_engine(name).version or "any") for name in files("engines")}
    known.pop("generic")
    assert {name: (title.strip(), version.strip()) for title, name, version in rows} == known
