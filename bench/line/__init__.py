"""Benchmarks of the line: joins, status, memory, recovery, and usual designs of a line."""
