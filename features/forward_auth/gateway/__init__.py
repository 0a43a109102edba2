"""The gateway's decision about requests to protected sites, and the way back to them."""
