"""The configuration: the structs that represent a conf.toml, the readers for conf.toml and for MirrorMaker 2's
properties file, and the checks. The package is pure: it reads files and environment variables, but uses no network,
clock or client library."""
