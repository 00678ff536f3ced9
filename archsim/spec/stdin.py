"""A document that comes in on standard input, kept as a file as long as the process runs."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from archsim.base.errors import SpecError

MAX_BYTES = 4_000_000


@cache
def document() -> Path:
    """The file with what was piped in: `stdin.json` for a config.json, `stdin.yaml` for a spec.

    Raises SpecError (E109) where nothing is piped in, or more than a document can be.
    """
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        hint = "such as `cat config.json | archsim count -`"
        raise SpecError(
            "`-` reads a spec or a config.json from standard input, which is empty", code="E109", hints=(hint,)
        )
    try:
        data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"cannot read standard input: {error}", code="E109") from error
    if len(data) > MAX_BYTES:
        raise SpecError(f"standard input is larger than {MAX_BYTES:,} bytes", code="E109")
    if not data.strip():
        raise SpecError("standard input is empty", code="E109")
    folder = Path(tempfile.mkdtemp(prefix="archsim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / ("stdin.json" if data.lstrip().startswith(b"{") else "stdin.yaml")
    path.write_bytes(data)
    return path
