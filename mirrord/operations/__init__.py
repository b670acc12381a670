"""One-off work next to a daemon: check, plan, status, catch-up and quarantine."""
