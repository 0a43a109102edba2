"""What a history is checked for, one subject a module; the standard library and plain SQL only."""
