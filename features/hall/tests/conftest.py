"""The fixtures of inventory and of the notifier."""

from tests.inventory.conftest import inventory, loops, settings  # noqa: F401
from tests.notifier.conftest import neighbours, notifier, redis_proxy, start, unpublished  # noqa: F401
