"""Decides what to commit for consumer groups, without any I/O."""
