"""Choices that a user makes by name, each a pure class or function with a small table of the names it knows.

`naming` turns source topics into target topics and back, `selecting` decides which topics a flow copies and says why
not, `properties` which of their settings and `acls` which rights on them are carried over. In comes a name from
conf.toml and what the choice depends on; out goes an object that answers the same question the same way for ever. An
unknown name raises ConfigError with the allowed names and the nearest one.
"""
