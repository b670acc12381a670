"""Choices that a user makes by name. Each is a pure class or function with a small table of the names it knows.

`naming` maps source topics to target topics and back. `selecting` decides which topics a flow copies, and gives the
reason for each topic that it does not copy. `properties` decides which topic configs are synced, and `acls` which ACLs.
Input: a name from conf.toml and the values that the choice depends on. Output: an object that always answers the same
question in the same way. An unknown name raises ConfigError with the allowed names and the closest one.
"""
