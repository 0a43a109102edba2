"""Keys, secrets, migrations, and the documents made from the code."""
