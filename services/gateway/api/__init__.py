"""The gateway's API: line, public keys and the fans' pages."""
