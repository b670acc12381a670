"""Reads MirrorMaker 2's properties file as a configuration of mirrord."""
