"""The supervision of one flow: its lease is held, its lanes are placed, its status is known."""
