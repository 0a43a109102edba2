"""`python -m bench.orders.accepting`: the orders service, whose worker begins every order and leaves it for an hour.

What is measured with it is the way of a request to its answer, and nothing that happens to an order afterwards.
"""

import sys
from typing import Any

from onsale.cli.app import main
from services.orders.worker.worker import OrderProcessor, Result

LEFT_S = 3600.0


async def leave(*_: Any) -> Result:
    """Nothing was due."""
    return Result(due_in_s=LEFT_S)


if __name__ == "__main__":
    OrderProcessor.process = leave  # type: ignore[method-assign, assignment]
    sys.argv[1:] = ["serve", "orders"]
    main()
