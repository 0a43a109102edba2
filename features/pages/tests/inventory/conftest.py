from tests.inventory.conftest import inventory, loops, settings  # noqa: F401 - fixtures
