"""What was done about orders: the audit log, the commands, and the invariants that must hold."""
