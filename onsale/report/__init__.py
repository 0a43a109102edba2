"""The commands that show the flow of a sale and write its report for the promoter."""
