"""The pure decisions of audits, repairs and rebuilds: which records are compared, what a difference means, and how it
is reported."""
