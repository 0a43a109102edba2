"""A fan with a place: join, heartbeat, claim, session, purchase."""
