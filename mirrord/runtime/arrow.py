"""Gives access to pyarrow with types. pyarrow itself has no type annotations, so this module defines a type for every
name that mirrord uses."""

import importlib
from typing import Any

arrow: Any = importlib.import_module("pyarrow")

RecordBatch = Any
"""The type of a `pyarrow.RecordBatch`."""
