"""Every SQL statement of the services has a case of `proof/plans`, which holds its cost at fifty thousand rows."""

from proof.plans import inventory_cases, orders_cases, queue_cases
from proof.plans.statements import statements

CASES = {"inventory": inventory_cases, "queue": queue_cases, "orders": orders_cases}


def test_every_statement_has_a_case() -> None:
    """A new one is added to `<service>_cases.py`, with the number of rows it concerns."""
    for service, cases in CASES.items():
        assert statements(service).keys() == cases.CASES.keys(), service
