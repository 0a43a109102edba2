"""The pages that fans see, and all that serves them: a feature."""
