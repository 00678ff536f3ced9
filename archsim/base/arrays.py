"""Types of NumPy arrays, imported for annotations alone: nothing loads NumPy for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Array = NDArray[Any]
"""Of numbers of any kind, or of texts."""

Where = Bools | Ints | slice
"""What chooses rows."""
