"""Numbers that a question needs to be whole and above 0."""

from __future__ import annotations

from archsim.base.errors import UsageError


def check_positive(**numbers: object) -> None:
    """Refuses counts that mean nothing, with UsageError that names the option."""
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"`--{name.replace('_', '-')}` must be a positive whole number, not {value!r}")
