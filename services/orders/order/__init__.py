"""Orders: states, next step, repository, leases, public view, search."""
