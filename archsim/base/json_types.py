"""Types of what is read from JSON and YAML and of what is written as JSON: objects with fields of any kind.

Values are checked where they are used; nothing but a document's own schema says what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""An object that is being made: a result's `to_dict`, a spec as fields."""

JsonMapping = Mapping[str, Any]
"""An object that is only read: a config.json, the attributes of a document."""
