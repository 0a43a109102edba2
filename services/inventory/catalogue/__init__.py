"""What is for sale: sections, rows and prices, from the event file."""
