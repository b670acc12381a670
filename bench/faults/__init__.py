"""Faults under load, with a proof that every record arrived exactly once: the campaign and its variants, the demo, the
simulator's stories, and what injects the faults."""
