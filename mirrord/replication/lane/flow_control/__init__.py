"""Mechanisms that decide how much data a lane has in flight. You can skip this folder when you read the code for the
first time."""
