"""Reads a MirrorMaker 2 properties file as a mirrord configuration."""
