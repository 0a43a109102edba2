"""What the admin APIs of the services take and answer."""
