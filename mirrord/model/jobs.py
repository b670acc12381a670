"""The kinds of jobs that run next to a flow, and how they end."""

from typing import Literal

AuditLevel = Literal["ledger", "digest", "records"]
"""What an audit compares. "ledger": only the ledger and the ends of both logs. "digest": the batches of both clusters,
by a digest. "records": every record of both clusters."""
ProvingLevel = Literal["digest", "records"]
"""The levels of an audit that prove records as copied. An audit of the ledger alone proves nothing about records."""


Job = Literal["audit", "compact"]


JobOutcome = Literal["done", "differences", "failed", "stopped"]
"""How a job ended. "done": it completed. "differences": an audit completed and found differences. "failed": it ended
with an error. "stopped": it was asked to stop."""
