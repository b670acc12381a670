"""Pure decisions about the positions of consumer groups."""
