"""Papers of an order, and the letters that they are written in."""
