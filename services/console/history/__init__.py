"""History: the figures of the last hour in memory, one a second, and those before in the database, one in ten."""
