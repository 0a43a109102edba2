"""The report of a sale for the promoter: its figures, gathered over the admin APIs, and its page."""
