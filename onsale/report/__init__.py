"""The flow of a sale and its report for the promoter."""
