"""What Python takes for a device and for calibrations."""

from __future__ import annotations

from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.timing.calibration import Store, default_store

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["8xh100", "h100x8", "8 x h100"])
def test_a_number_of_devices_with_the_name(name: str) -> None:
    """As on the command line: the same answer as with `devices`."""
    assert a.estimate("llama3-8b", name).to_dict() == a.estimate("llama3-8b", "h100", devices=8).to_dict()
    assert a.fit("llama3-8b", name).to_dict() == a.fit("llama3-8b", "h100", devices=8).to_dict()


@pytest.mark.parametrize("function", [a.compare, a.sweep, a.report])
def test_functions_of_several_devices_take_it_too(function: Any) -> None:
    """One number for all of them."""
    asked, plain = function("llama3-8b", "2xh100,2xa100"), function("llama3-8b", ["h100", "a100"], devices=2)
    assert _content(asked) == _content(plain)
    with pytest.raises(UsageError, match="one number of devices at a time, not 2 and 4"):
        function("llama3-8b", "2xh100,4xa100")


def _content(answer: Any) -> object:
    """What an answer says."""
    if hasattr(answer, "html"):
        return answer.html
    return answer.to_dict() if hasattr(answer, "to_dict") else [list(chunk.rows()) for chunk in answer.chunks()]


def test_two_numbers_are_refused() -> None:
    """The name and `devices` disagree."""
    with pytest.raises(UsageError, match="one number of devices at a time, not 4 and 8"):
        a.estimate("llama3-8b", "8xh100", devices=4)


def test_other_calibrations_reach_the_times() -> None:
    """Without the fits of H100 an estimate rests on those of other devices, or on the datasheet."""
    own = a.estimate("llama3-8b", "h100")
    same = a.estimate("llama3-8b", "h100", store=default_store())
    assert same.to_dict() == own.to_dict()
    empty = Store(entries=(), levels={}, engines={})
    bare = a.estimate("llama3-8b", "h100", store=empty)
    assert (own.prefill.evidence, bare.prefill.evidence) == ("calibrated", "datasheet")
    assert bare.prefill.ideal_s == own.prefill.ideal_s
    assert a.trace("llama3-8b", "h100", store=empty).estimate.store is empty


def test_a_store_is_a_store() -> None:
    """A path is refused, with what there is."""
    with pytest.raises(UsageError, match=r"store is a Store of archsim\.timing\.calibration"):
        a.estimate("llama3-8b", "h100", store="calibration.yaml")
