"""`python -m tools.clients` writes the generated parts of the clients."""

from tools.clients import parts

parts.write()
