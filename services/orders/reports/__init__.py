"""Reports on money and orders: charges, settlement by day, comparison with providers, CSV export."""
