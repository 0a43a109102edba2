"""Calls to other services and to other people's servers over HTTP."""
