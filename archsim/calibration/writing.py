"""Calibration documents as YAML, laid out for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archsim.base.json_types import JsonMapping
from archsim.base.output_file import write_text


def write_yaml(path: Path, data: JsonMapping, head: str = "", *, force: bool = False) -> None:
    """A YAML file in the order given: short mappings and lists of numbers stay on one line. head: comment lines.

    force: overwrite an existing file. Raises OutputRefused, OutputFailure.
    """
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
    text = yaml.dump(dict(data), Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
    write_text(path, head + text, force=force)
