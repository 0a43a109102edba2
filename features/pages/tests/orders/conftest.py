from tests.orders.conftest import environment, inventory, of_providers, processes, shop  # noqa: F401 - fixtures
