"""pyarrow, which ships no types: what is taken from it is typed where it enters."""

import importlib
from typing import Any

arrow: Any = importlib.import_module("pyarrow")

RecordBatch = Any
"""A `pyarrow.RecordBatch`."""
