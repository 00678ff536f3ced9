"""Sentences that readers stumbled over stay gone from everything that archsim prints, documents or says in code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

REFUSED = (
    "prices transformer", "what to expect of it", "charts that one can turn", r"turning it\b", "flag to turn",
    "flag should be turned", "turned round", "what would hold more", "while no window is full", "caches at full length",
    r"\bwork  +\d", "was made for", "how sure that is", "how sure is that", "cannot be told", "times as slow as",
    "decisions apart", "the others are set against", "default: the own", "no closed form knows",
    "where a queue decides", "what they cannot tell apart", "tokens/s of a user", "upright tick",
    "no public run of these models", "what is built on it", "every point equals", "file, or why there is none",
    "no prediction has seen a measured", "no prediction sees a measured",
    "none of which names a model", "ride with the product", "how near the fit is", "nearest fit of a store",
    "kernel's floor that no other", "expected time to an end of the interval", "turn of one's own",
    "that a last wave of tiles counts", "beside the blocks of a matrix", "or that would change nothing yet, waits",
    "meaning of its share, the rest may take", "one-token prompts run in other", "no steady state: no request has room",
    "norm behind", "unrotated size", "rotated size", "in the engine's words",
)  # fmt: skip
"""Regular expressions, lower case. A word of the field stands in the place of each."""

KINDS = ("archsim/**/*.py", "archsim/**/*.yaml", "archsim/**/*.js", "archsim/**/*.md", "docs/*.md",
         "*.md", "reports/*.md", "reports/examples/*.html", "tests/golden/*.txt")  # fmt: skip
QUOTES = ("CHANGELOG.md", "claims.md")
"""Pages that quote: earlier texts of archsim, or articles."""


def stumbles(text: str) -> list[str]:
    """The refused sentences of a text, whatever its line breaks."""
    flat = re.sub(r"\s+(?:# |\* |\" +\")?", " ", re.sub(r'"\s*\n\s*f?"', "", text)).lower()
    return [phrase for phrase in REFUSED if re.search(phrase, flat)]


def test_a_stumble_is_seen_across_lines() -> None:
    """Also where a string or a comment goes on in the next line."""
    assert stumbles('("where a queue "\n    "decides it")') == ["where a queue decides"]
    assert stumbles("# where a queue\n# decides it") == ["where a queue decides"]
    assert stumbles("near saturation, where it depends on arrivals") == []


@pytest.mark.parametrize("kind", KINDS)
def test_stumbles_stay_gone(kind: str) -> None:
    """Each is said as an engineer of the field would say it."""
    pages = [path for path in sorted(ROOT.glob(kind)) if path.name not in QUOTES]
    assert pages
    found = {str(path.relative_to(ROOT)): wrong for path in pages if (wrong := stumbles(path.read_text("utf-8")))}
    assert found == {}
