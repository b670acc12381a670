"""One-off operations that commands run outside a daemon: check, plan, status, groups, seek, catch-up and quarantine."""
