"""Keys, secrets, migrations, and the list of metrics."""
