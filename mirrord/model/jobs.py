"""The kinds of jobs that run next to a flow, and the possible outcomes of a job."""

from typing import Literal

AuditLevel = Literal["ledger", "digest", "records"]
"""What an audit compares:

- "ledger": only the ledger with the ends of both logs.
- "digest": the batches on both clusters, by a digest of each batch.
- "records": every record on both clusters.
"""
ProvingLevel = Literal["digest", "records"]
"""The levels at which an audit can prove that records are copied. An audit at the level "ledger" proves nothing about
records."""


Job = Literal["audit", "compact"]


JobOutcome = Literal["done", "differences", "failed", "stopped"]
"""The outcome of a job:

- "done": the job completed.
- "differences": the job is an audit, which completed and found differences.
- "failed": the job ended with an error.
- "stopped": the job was asked to stop.
"""
