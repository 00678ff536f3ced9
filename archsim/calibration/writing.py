"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archsim.base.json_types import JsonMapping


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Writes beside the file and renames: a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_yaml(path: Path, data: JsonMapping, head: str = "") -> None:
    """A YAML file in the order given: short mappings and lists of numbers stay on one line. head: comment lines."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Flow style for whatever holds no further mapping; equal values are written out each time."""

        def ignore_aliases(self, data: Any) -> bool:
            """Anchors would save bytes and cost the reader the line that he looks at."""
            return True

    def represent(dumper: Any, value: Any) -> Any:
        items = value.values() if isinstance(value, Mapping) else value
        flat = not any(isinstance(item, (dict, list, tuple)) for item in items)
        if isinstance(value, Mapping):
            return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=flat)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)

    for kind in (dict, list, tuple):
        Dumper.add_representer(kind, represent)
    write_text(path, head + yaml.dump(dict(data), Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True))
