"""Keys, tokens, passes and who may call what."""
