"""The kinds of jobs that run next to a flow, and how they end."""

from typing import Literal

ProvingLevel = Literal["digest", "records"]
"""How closely records were compared. An audit of the ledger alone proves nothing about the records."""


Job = Literal["audit", "compact"]


Outcome = Literal["done", "differences", "failed", "stopped"]
"""How a job ended. "differences": an audit completed and found differences. "stopped": it was asked to stop."""
