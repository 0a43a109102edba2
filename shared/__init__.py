"""What the five services have in common: one noun a file, and none of them knows a service."""
