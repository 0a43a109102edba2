"""The reference pages of docs/reference, each collected from the code and written as Markdown tables."""
