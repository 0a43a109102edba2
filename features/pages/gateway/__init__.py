"""What the fans' pages say before any script runs, and all that they say and offer without scripts."""
