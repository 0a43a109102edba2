from tests.queue.conftest import inventory, new_queue, queue  # noqa: F401
