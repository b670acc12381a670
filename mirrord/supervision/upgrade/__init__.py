"""Replaces a running daemon by a new one (`mirrord start --upgrade`) without a pause of its flows."""
