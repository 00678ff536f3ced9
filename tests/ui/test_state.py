"""Links: every state survives one, and a bad one is answered with a message."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from archsim.ui.choices import Choices, choices
from archsim.ui.state import MOST, Candidate, Load, Mode, State, parse_state


@pytest.fixture(scope="module")
def known() -> Choices:
    """What can be picked."""
    return choices(built_in=True)


def random_state(known: Choices, rng: random.Random) -> State:
    """A state that the controls can reach."""
    candidates = tuple(
        Candidate(
            model=rng.choice(known.models), hw=rng.choice(known.devices), devices=rng.choice([None, 1, 2, 8]),
            weights=rng.choice(["", "exl2_4.5bpw", rng.choice(known.formats)]), engine=rng.choice(known.engines),
            kv_cache_dtype=rng.choice(["", "fp8"]), tp=rng.choice([None, 2]),
            price=rng.choice(["", "2.5", "runpod:spot"]),
            changes=rng.choice([(), ("attention.n_kv_heads=4", "attention.mask={kind: sliding, window: 4096}")]),
        )
        for _ in range(rng.randint(1, MOST))
    )  # fmt: skip
    mode: Mode = rng.choice(get_args(Mode))
    load = Load(input_len=rng.randint(1, 2**20), output_len=rng.randint(1, 9999), mode=mode)
    value = {"batch": 17, "concurrency": 33, "rate": 0.25}[mode]
    return State(candidates=candidates, load=Load(**{**_fields(load), mode: value}))


def _fields(load: Load) -> dict[str, object]:
    return {name: getattr(load, name) for name in Load.__annotations__}


def test_every_state_survives_its_link(known: Choices) -> None:
    """What a link says is what it was made of."""
    rng = random.Random(7)
    for _ in range(50):
        state = random_state(known, rng)
        assert parse_state("?" + state.query(), known, {}) == (state, ())


def test_every_field_stands_in_the_link(known: Choices) -> None:
    """A field that is changed changes the link."""
    changes = {"model": "gpt2-small", "hw": "rtx-4090", "devices": 4, "weights": "fp8", "kv_cache_dtype": "fp8"}
    more = {"engine": "sglang", "tp": 2, "price": "cheapest", "changes": ("layers.repeat=4",)}
    assert {*changes, *more} == set(Candidate.__annotations__)
    usual = State().query()
    for name, value in {**changes, **more}.items():
        changed = State(candidates=(Candidate(**{name: value}),))
        assert changed.query() != usual and parse_state(changed.query(), known, {})[0] == changed


def test_spellings_of_people_are_understood(known: Choices) -> None:
    """Aliases, Hub ids and suffixes, as on the command line."""
    state, findings = parse_state("model=meta-llama/Llama-3.1-8B-Instruct-FP8&hw=H100&engine=vLLM@0.11", known, {})
    only = state.candidates[0]
    assert (only.model, only.hw, only.weights, only.engine) == ("llama3.1-8b", "h100-sxm", "fp8", "vllm@0.11")
    assert findings == ()


BAD = [
    ("model=no-such-model", "no model named"),
    ("model=gpt2-smal", "did you mean"),
    ("model=upload-0123456789abcdef", "uploaded elsewhere"),
    ("model=../../etc/passwd", "no model named"),
    ("model=/etc/hosts.yaml", "no model named"),
    ("model=file.py:Class", "no model named"),
    ("model=-", "no model named"),
    ("hw=./hardware/devices/h100-sxm.yaml", "no device named"),
    ("weights=specs/formats/fp8.yaml", "no format named"),
    ("weights=3*q4_k%2B/etc/passwd", "no format named"),
    ("engine=vllm@../../x", "no engine named"),
    ("kv-cache-dtype=%00", "no format named"),
    ("devices=-1", "a whole number from 1"),
    ("devices=99999999", "a whole number from 1"),
    ("batch=1e9", "a whole number from 1"),
    ("batch=٣", "a whole number from 1"),
    ("input-len=", "a whole number from 1"),
    ("rate=nan", "requests per second"),
    ("rate=inf", "requests per second"),
    ("tp=0", "a whole number from 1"),
    ("price=/etc/passwd", "dollars per device and hour"),
    ("price=-1", "dollars per device and hour"),
    ("price=1e400", "dollars per device and hour"),
    ("set=d_model", "FIELD=VALUE"),
    ("set=weights.params%3D/etc/passwd", "a control of their own"),
    ("set=extends%3D../secret", "another model above"),
    ("set=../x%3D1", "FIELD=VALUE"),
    ("set=" + "a%3D1;" * 9, "at most 8 changes"),
    ("colour=red", "is unknown and is ignored"),
    ("model5=gpt2-small", "is unknown and is ignored"),
    ("x" * 5000, "longer than"),
]


@pytest.mark.parametrize(("query", "words"), BAD, ids=[query[:30] for query, _ in BAD])
def test_a_bad_link_says_what_is_wrong(query: str, words: str, known: Choices) -> None:
    """The rest of the link counts; nothing is opened."""
    state, findings = parse_state(query, known, {})
    assert any(words in text for text in findings), findings
    assert all(len(text) <= 420 and text.isprintable() for text in findings)
    assert parse_state(state.query(), known, {}) == (state, ())
