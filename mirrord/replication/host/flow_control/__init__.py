"""Mechanisms that decide how much is fetched, when, and from where. A first reader may skip this folder."""
