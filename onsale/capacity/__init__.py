"""`onsale plan`: calculates the capacity that a sale needs from measured costs."""
