"""An order and the rules about it: no I/O and no clock."""
