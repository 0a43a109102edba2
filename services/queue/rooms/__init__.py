"""Waiting rooms: their configuration, its audit log, and the invariants that hold in each."""
