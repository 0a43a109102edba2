"""The map of a hall with the states of its seats, and the brand of an event with its pictures."""
