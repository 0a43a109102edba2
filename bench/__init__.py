"""Side-by-side benchmarks on real PostgreSQL and Valkey: Onsale and another design; each prints a ratio."""
