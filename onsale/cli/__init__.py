"""The `onsale` command: one module for each noun an operator works with, `app` puts them together."""
