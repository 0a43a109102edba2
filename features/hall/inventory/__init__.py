"""What inventory has of this feature."""
