"""Pure decisions about heartbeats, checkpoints and MirrorMaker 2's topics."""
