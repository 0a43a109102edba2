"""Access codes: what lets fans join a lane that is not for everybody."""
