"""The open orders of a process, and the work on them."""
