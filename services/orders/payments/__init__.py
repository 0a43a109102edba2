"""Payment providers behind one protocol: charge with a token, or redirect and return."""
