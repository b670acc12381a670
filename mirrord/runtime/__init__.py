"""Services that every process needs: clock, logs, background tasks, and build information."""
