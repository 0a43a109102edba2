"""The command line in this process."""

from tests.onsale.conftest import client, onsale, operate  # noqa: F401 - fixtures
