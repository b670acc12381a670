"""The kinds of jobs that run next to a flow, and how they end."""

from typing import Literal

AuditLevel = Literal["ledger", "digest", "records"]
"""How closely an audit compares: the ledger with itself, batches by a digest, or every record."""
ProvingLevel = Literal["digest", "records"]
"""How closely records were compared. An audit of the ledger alone proves nothing about the records."""


Job = Literal["audit", "compact"]


JobOutcome = Literal["done", "differences", "failed", "stopped"]
"""How a job ended. "differences": an audit completed and found differences. "stopped": it was asked to stop."""
