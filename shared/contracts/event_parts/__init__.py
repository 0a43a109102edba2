"""Parts of an event file that have rules of their own: the map of the hall, its brand, the labels of its seats."""
