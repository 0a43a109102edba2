"""`python -m onsale`."""

from onsale.cli.app import main

main()
