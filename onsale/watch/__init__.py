"""`onsale watch`: the console's stream of one sale in a terminal."""
