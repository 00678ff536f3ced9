"""What is kept of steps: many of plain numbers, few of arrays, which take megabytes."""

from __future__ import annotations

import numpy as np

from archsim.counts.lowered_steps import REMEMBERED_ARRAYS, StepMemo
from archsim.graph.step import Step


def test_few_steps_of_arrays_are_kept_beside_many_of_numbers() -> None:
    memo = StepMemo[int](64)
    made: list[int] = []

    def result(step: Step) -> int:
        return memo.get(step, None, lambda: (made.append(1), len(made))[1])

    plain = [Step.decode(1, n) for n in range(1, 33)]
    arrays = [Step.decode(1, np.arange(1.0, n)) for n in range(3, 43)]
    first = [result(step) for step in plain + arrays]
    assert [result(step) for step in plain] == first[:32] and len(made) == 72
    assert len(memo.arrays) == REMEMBERED_ARRAYS
    assert result(arrays[-1]) == first[-1] and result(arrays[0]) == 73
