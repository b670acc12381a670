"""One-off work that commands do next to a daemon: check, plan, status, groups, seek, catch-up and quarantine."""
