"""Decides which heartbeats, checkpoints and topics to write for MirrorMaker 2's clients, without any I/O."""
