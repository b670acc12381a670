"""Syncs the committed offsets of consumer groups between the two clusters of a flow, in both directions."""
