"""The part of the queue: rooms whose order is drawn, entry, the count of the entrants, and the draw."""
