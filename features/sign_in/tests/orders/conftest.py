"""The fixtures of orders."""

from tests.orders.conftest import environment, inventory, of_providers, processes  # noqa: F401
