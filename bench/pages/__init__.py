"""The fans' pages in a browser: what a page costs a phone."""
