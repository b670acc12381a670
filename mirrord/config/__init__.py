"""The configuration: conf.toml and MirrorMaker 2's properties, their structs, readers and checks. Pure."""
