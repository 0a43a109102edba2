"""What an operator can say to `onsale` about stock and orders."""
