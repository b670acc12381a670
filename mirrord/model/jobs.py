"""The kinds of jobs, and the possible outcomes of a job. A job is an audit of a flow or a compaction of its ledger. It
runs in a separate process, while the flow continues to copy."""

from typing import Literal

AuditLevel = Literal["ledger", "digest", "records"]
"""What an audit compares:

- "ledger": the contents of the ledger against the start and end offsets of the source log and the target log. No
  records are read.
- "digest": the batches on both clusters, by a digest of each batch.
- "records": every record on both clusters.
"""
ProvingLevel = Literal["digest", "records"]
"""The levels at which an audit can prove that records were copied. An audit at the level "ledger" cannot prove this,
because it reads no records."""


Job = Literal["audit", "compact"]


JobOutcome = Literal["done", "differences", "failed", "stopped"]
"""The outcome of a job:

- "done": the job completed.
- "differences": the job was an audit that completed and found differences.
- "failed": the job ended with an error.
- "stopped": the job ended early, because it was asked to stop.
"""
