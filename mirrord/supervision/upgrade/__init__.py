"""Replaces a running daemon with a new one (`mirrord start --upgrade`) without interrupting its flows."""
