"""What there is to sell: sections, rows and seats, selections of them, the map; and the cache of events."""
