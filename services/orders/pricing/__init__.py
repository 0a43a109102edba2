"""What an order costs: prices, fees, taxes, quotes."""
