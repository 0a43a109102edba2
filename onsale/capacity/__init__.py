"""`onsale plan`: how much of everything a sale needs, from what was measured; arithmetic, nothing is asked."""
