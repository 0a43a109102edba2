"""The command line against the running suite."""

from tests.journeys.conftest import operate  # noqa: F401 - a fixture
