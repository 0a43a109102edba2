"""`onsale doctor`: checks an installation from the operator's machine and says what to do."""
