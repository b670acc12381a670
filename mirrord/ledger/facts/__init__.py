"""The facts that a ledger consists of."""
