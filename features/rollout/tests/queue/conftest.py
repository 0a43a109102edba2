from tests.queue.conftest import admin, app, inventory, new_queue, queue  # noqa: F401
