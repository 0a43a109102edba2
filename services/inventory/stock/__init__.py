"""What operators do with stock: block it, allot it, report it."""
