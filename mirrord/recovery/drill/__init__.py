"""Rehearses a failover without touching anything that clients use."""
