"""`python -m onsale`."""

from onsale.cli import main

main()
