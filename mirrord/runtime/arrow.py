"""Imports pyarrow for type-checked code. pyarrow has no type annotations. Therefore this module declares it as `Any`,
and defines names for the pyarrow types that appear in mirrord's annotations."""

import importlib
from typing import Any

arrow: Any = importlib.import_module("pyarrow")

RecordBatch = Any
"""The type of a `pyarrow.RecordBatch`."""
