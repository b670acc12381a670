"""One daemon process, with its flows, its HTTP API and its metrics."""
