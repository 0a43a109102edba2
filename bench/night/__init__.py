"""The night: half a million fans, ten thousand tickets, one machine."""
