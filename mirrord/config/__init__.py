"""The configuration: conf.toml and MirrorMaker 2's properties file, with their structs, readers and checks. Pure: files
and environment variables are read, but no network, clock or client library is used."""
