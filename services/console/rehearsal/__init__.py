"""Rehearsals: a simulated sale against a copy of an event, run by the command line in a process of its own."""
