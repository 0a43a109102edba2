"""What an order costs: prices, promo codes, fees, taxes, quotes."""
