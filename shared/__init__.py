"""What all services share: the wire between them, the databases they stand on, security, and the contracts."""

VERSION = "0.2.0"  # of every service and of the package: pyproject.toml reads it here
