"""How much a lane has in flight. A first reader may skip this folder."""
