"""Mechanisms that decide how much is fetched, when, and from where. You can skip this folder when you read the code for
the first time."""
