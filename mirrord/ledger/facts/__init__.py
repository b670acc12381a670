"""The kinds of facts that a ledger can contain."""
