"""Services of the process: clock, logs, tasks, build information."""
