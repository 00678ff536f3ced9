"""A spec on standard input is called `stdin` in errors, as it is on pages."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest


@pytest.mark.parametrize("spec", ["name: x\n", "name: x\nd_model: -3\nlayers: []\n", '{"a": ', ":"])
def test_errors_do_not_name_a_temporary_file(spec: str) -> None:
    """Nobody else has seen the file that the text was copied to."""
    words = [sys.executable, "-m", "archsim", "count", "-"]
    found = subprocess.run(words, input=spec, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode in (2, 3) and "stdin" in found.stderr
    assert tempfile.gettempdir() not in found.stderr and "Traceback" not in found.stderr
