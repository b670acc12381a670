"""Mechanisms that decide how much data a lane has in flight. You can skip this folder when reading the code for the
first time."""
