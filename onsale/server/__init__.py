"""How a service is served: uvicorn, its protocol, garbage collection, limits."""
