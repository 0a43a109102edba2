"""The one place that reads orders, and the one that writes them."""
