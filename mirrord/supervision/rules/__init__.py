"""Pure decisions of supervision: placement, reconciliation, orders and probes."""
