"""Makes the generated parts of the clients: the Python client's modules and the JavaScript client's types."""
