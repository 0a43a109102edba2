"""What one operation costs as things grow, and as processes are added."""
