"""Histories of a sale: what fans were told, one acknowledgement a line, and the checker that holds the sale to them."""
