"""What an event's page tells other programs: search engines, calendars, home screens and other sites."""
