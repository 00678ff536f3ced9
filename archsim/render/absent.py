"""What archsim does not model, or another command does: said so, with the nearest."""

from __future__ import annotations

import re
from itertools import pairwise


def nearest(text: str) -> tuple[str, ...]:
    """One hint for the first word of `text` that stands for something that is not modelled, or that a command named in
    its explanation answers; or none.
    """
    from archsim.render.glossary import ABSENT, SYNONYMS, TERMS

    words = re.findall(r"[a-z]+", text.lower())
    pairs = [" ".join(two) for two in pairwise(words)]
    for word in (*pairs, *words):
        topic = SYNONYMS.get(word, word)
        if topic in ABSENT:
            return (f"{topic} is not modelled; `archsim explain {topic}` says what is nearest",)
        if word in SYNONYMS and "`archsim " in TERMS[topic]:
            return (f"`archsim explain {topic}` says which command answers that",)
    return ()
