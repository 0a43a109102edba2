"""Each process checks itself: its databases, clocks, keys, limits and settings. `onsale doctor` asks for it."""
