"""Configuration of load balancers from the table of routes."""
