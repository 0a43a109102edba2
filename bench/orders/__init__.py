"""Orders and whole purchases."""
