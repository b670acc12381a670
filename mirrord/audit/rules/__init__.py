"""The pure decisions of audits, repairs and rebuilds: what is compared, what a difference means, and how it is
reported."""
