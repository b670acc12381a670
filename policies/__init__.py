"""The policies of a flow: pure classes and functions that a user chooses by name, and the loading of classes that a
user provides.

`naming` maps source topics to target topics and back. `selecting` decides which topics a flow copies, and gives the
reason for each topic that it does not copy. `properties` decides which topic configs are synced, and `acls` which ACLs.
Input: a name from conf.toml and the values that the policy depends on. Output: an object that always gives the same
answer for the same name. An unknown policy name raises ConfigError with the allowed names and the closest one.
"""
