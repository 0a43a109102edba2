"""Texts in the languages of the pages."""
