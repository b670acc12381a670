"""The kinds of jobs that run next to a flow, and how they end."""

from typing import Literal

ProvingLevel = Literal["digest", "records"]
"""How closely was looked; an audit of the ledger alone proves nothing of the records."""


Job = Literal["audit", "compact"]


Outcome = Literal["done", "differences", "failed", "stopped"]
"""How a job ended. "differences": an audit went through and found some; "stopped": it was told to end."""
