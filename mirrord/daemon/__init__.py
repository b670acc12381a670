"""One daemon process: its flows, its HTTP API and its metrics."""
