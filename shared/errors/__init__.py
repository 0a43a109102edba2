"""Errors of the suite, and of what it stands on: below everything else."""
