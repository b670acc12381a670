"""Typed access to pyarrow. pyarrow ships no types, so every name that mirrord uses gets its type here."""

import importlib
from typing import Any

arrow: Any = importlib.import_module("pyarrow")

RecordBatch = Any
"""A `pyarrow.RecordBatch`."""
