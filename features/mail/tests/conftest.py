"""The fixtures of orders."""

from tests.orders.conftest import (  # noqa: F401
    environment,
    inventory,
    mail_port,
    mail_shop,
    mailbox,
    of_providers,
    processes,
    pytest_collection_modifyitems,
    shop,
)
