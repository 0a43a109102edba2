"""The map of a hall on the command line: import it from a plan, show it as a picture."""
