"""The words that archsim uses and the codes of its errors, each explained once, in `texts.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml

_TEXTS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text("utf-8"))

EXPLAIN = _TEXTS["errors"]
"""Error code -> what it means and what to do."""

TERMS = _TEXTS["terms"]
"""Word -> definition."""

ABSENT = _TEXTS["absent"]
"""What archsim does not model -> that, and the nearest that it does."""

SYNONYMS = _TEXTS["synonyms"]
"""Other words for a term."""
