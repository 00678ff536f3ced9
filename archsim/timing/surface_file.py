"""The surfaces of one calibration in one compressed file, `surfaces.json.gz` beside its `calibration.yaml`.

Gzip of one line for each fit: its name, a tab, and a JSON list of surfaces, each `[axes, values]` with the axes as
`[name, start, step, nodes]` and the values in units of 1e-4. A reader unpacks the file, which takes a millisecond, and
parses the lines that it needs.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from archsim.base.errors import SpecError
from archsim.base.input_file import read_input
from archsim.timing.classes.surface import Axis, Surface

FILE = "surfaces.json.gz"
LARGEST = 64 * 2**20
"""Bytes of the file."""
SCALE = 10_000
"""Values are kept to four places: a hundredth of a per cent of the time."""

_GZIP = 31
"""`wbits` of zlib for a gzip header; its time is zero, so that equal surfaces are equal bytes."""


def packed(surfaces: Mapping[str, Sequence[Surface]]) -> bytes:
    """The bytes of a file with the surfaces of some fits, by the fits' names."""
    lines = []
    for name, listed in sorted(surfaces.items()):
        data = [[list(map(list, one.axes)), [round(SCALE * v) for v in one.values]] for one in listed]
        lines.append(f"{name}\t{json.dumps(data, separators=(',', ':'))}")
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    return packer.compress("\n".join(lines).encode()) + packer.flush()


def read_surfaces(path: str, name: str) -> tuple[Surface, ...]:
    """The surfaces of one fit; a file is unpacked once, and again after it was rewritten. Raises SpecError (E109)."""
    try:
        lines = _lines(path, os.stat(path).st_mtime_ns)
        return tuple(
            Surface(tuple(Axis(*axis) for axis in axes), [value / SCALE for value in values])
            for axes, values in json.loads(lines[name])
        )
    except (OSError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"cannot use {path}: no surfaces of {name} in it", code="E109") from error


@lru_cache(maxsize=64)
def _lines(path: str, modified: int) -> dict[str, str]:
    """The JSON of every fit, by its name."""
    text = zlib.decompress(read_input(path, LARGEST), _GZIP).decode()
    return {name: data for name, _, data in (line.partition("\t") for line in text.splitlines())}
