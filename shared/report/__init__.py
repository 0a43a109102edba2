"""What a sale is checked by, over all services, and how its rows are written for spreadsheets."""
