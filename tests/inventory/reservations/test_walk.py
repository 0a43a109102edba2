"""How many files of the product a hold crosses, from the fan's request to its row and its deadline in Redis.

Whoever looks for the cause of a hold that failed opens these files. A failure prints them all.
"""

from tests.inventory.conftest import Inventory
from tests.support.walk import crossed, listed

HOLD_MAX = 21


async def test_a_hold_crosses_few_files(inventory: Inventory) -> None:
    """A seat and tickets without one, with a pass, as most fans hold them."""
    files = await crossed(lambda n: inventory.hold(f"fan-{n}", seats=[f"A-1-{n + 1}"], ga_section="GA1", ga_quantity=2))
    assert len(files) <= HOLD_MAX, listed(files)
