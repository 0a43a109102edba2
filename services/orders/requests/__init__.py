"""What buyers and operators ask of an order that exists."""
