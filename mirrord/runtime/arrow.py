"""pyarrow ships no types, so everything that is used from it gets its type here."""

import importlib
from typing import Any

arrow: Any = importlib.import_module("pyarrow")

RecordBatch = Any
"""A `pyarrow.RecordBatch`."""
