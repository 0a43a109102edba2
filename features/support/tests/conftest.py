"""The fixtures of orders."""

from tests.orders.conftest import (  # noqa: F401
    environment,
    inventory,
    loops,
    of_providers,
    processes,
    pytest_collection_modifyitems,
    shop,
)
