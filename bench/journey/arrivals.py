"""A real on-sale: Electromagnetic Field 2026, by the totals that were published of it.

967 reservations came within 17 seconds, 718 of them within six, 134 in the busiest one, and it was sold out after 13.
No more is known here. The seconds between are filled in: the six busy ones follow each other from the second one on,
the busiest in their middle, the others alike; what is left comes evenly in the seconds before and after.
"""

RESERVATIONS, SECONDS, SOLD_OUT_S = 967, 17, 13
BUSY, BUSY_SECONDS, BUSIEST = 718, 6, 134
BUSY_FROM_S = 1


def by_second(times: int = 1) -> list[int]:
    """How many fans come in each second, `times` as many as came."""
    busy = _evenly(BUSY - BUSIEST, BUSY_SECONDS - 1)
    busy.insert(BUSY_SECONDS // 2, BUSIEST)
    quiet = _evenly(RESERVATIONS - BUSY, SECONDS - BUSY_SECONDS)
    return [times * fans for fans in (*quiet[:BUSY_FROM_S], *busy, *quiet[BUSY_FROM_S:])]


def moments(times: int = 1) -> list[float]:
    """When each fan comes, in seconds: evenly within a second."""
    return [second + n / fans for second, fans in enumerate(by_second(times)) for n in range(fans)]


def tickets(times: int = 1) -> int:
    """As many as were asked for until it was sold out."""
    return sum(by_second(times)[:SOLD_OUT_S])


def _evenly(whole: int, parts: int) -> list[int]:
    return [whole * (n + 1) // parts - whole * n // parts for n in range(parts)]
