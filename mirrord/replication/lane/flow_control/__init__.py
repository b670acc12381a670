"""Mechanisms that decide how much data a lane has in flight. A first reader may skip this folder."""
