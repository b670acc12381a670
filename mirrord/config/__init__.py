"""The configuration: the structs of conf.toml, the readers of conf.toml and of MirrorMaker 2's properties file, and the
checks. Pure: files and environment variables are read, but no network, clock or client library is used."""
