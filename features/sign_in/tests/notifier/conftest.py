"""The notifier's fixtures."""

from tests.notifier.conftest import neighbours, redis_proxy, start  # noqa: F401
