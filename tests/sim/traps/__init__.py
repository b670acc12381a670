"""Faults at the moments at which a rule of the lane matters."""
