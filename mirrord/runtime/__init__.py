"""Services that every process needs: clock, logs, tasks, and build information."""
