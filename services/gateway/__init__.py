"""The gateway: fans join the line, poll their status and claim their pass; protected sites check passes here."""
