"""Serves a service over HTTP: uvicorn, its protocol, request limits, garbage collection."""
