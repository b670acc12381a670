"""Replaces a running daemon by another one (`mirrord start --upgrade`) without a pause of its flows."""
