"""Side-by-side measurements on real engines: ours and the design we compare with, in one run; each prints a ratio."""
