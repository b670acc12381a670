"""Writes the records that MirrorMaker 2's clients read: heartbeats, checkpoints and offset syncs."""
