"""The policies of a flow. They are pure classes and functions that a user selects by name. A user can also provide
classes, which this package loads.

`naming` maps source topics to target topics and back. `selecting` decides which topics a flow copies, and gives the
reason for each topic that is not copied. `properties` decides which topic configs are synced, and `acls` decides which
ACLs are synced.

The input is a policy name from conf.toml and the values that the policy needs. The output is an object that always
returns the same result for the same argument. An unknown policy name raises ConfigError, whose message lists the
allowed names and suggests the closest one.
"""
