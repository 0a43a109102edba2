"""The admission loop: who is called, how many a second, and what lowers the rate."""
