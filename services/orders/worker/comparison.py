"""Compares the charges of each provider with our money ledger after the sale: what webhooks told nobody is found.

A minute and an hour after a charge was made it is read again, a page of a thousand at a time, by one process. An order
whose money, refunds or dispute differ is woken, and reads its charges by itself.
"""

from collections.abc import Mapping, Sequence

import orjson

from services.orders.providers.provider import (
    NotSent,
    OutcomeUnknown,
    Provider,
    ProviderCharge,
    ProviderRejected,
)
from services.orders.store.store import OrderStore
from shared.concurrency.background import Quiet
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import statement
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
_BEGIN = statement("services.orders.store", "begin_comparison")
_END = statement("services.orders.store", "end_comparison")
_DIFFERING = statement("services.orders.store", "differing_charges")
AFTER_S = (60, 3600)  # so long after a charge was made
INTERVAL_S, QUIET_S = 20.0, 60.0
FIRST_S = 3600  # the first comparison looks back so much further
PAGE = 1000


async def run(store: OrderStore, providers: Mapping[str, Provider]) -> Quiet | None:
    """`compare` as a loop calls it."""
    return None if await compare(store, providers) else Quiet(QUIET_S)


async def compare(store: OrderStore, providers: Mapping[str, Provider]) -> list[str]:
    """Compares what is to be compared now, and returns the orders that were woken."""
    woken: list[str] = []
    for name, provider in providers.items():
        for after_s in AFTER_S:
            woken += await _compare(store, name, provider, after_s)
    return woken


async def _compare(store: OrderStore, name: str, provider: Provider, after_s: int) -> list[str]:
    bound = {"provider": name, "after_s": after_s}
    async with store.db.connect() as connection:
        begun = (await connection.execute(_BEGIN, {**bound, "first_s": FIRST_S})).first()
    if begun is None or begun.until_ms <= begun.since_ms:
        return []
    differing: list[str] = []
    if begun.is_busy:
        try:
            charges = await provider.list_since(begun.since_ms, begun.until_ms)
        except (NotSent, OutcomeUnknown, ProviderRejected) as failed:
            log.info("provider.not_compared", provider=name, error=repr(failed))
            return []  # in a minute
        for page in chunks(charges, PAGE):
            differing += await _differing(store, name, page)
    async with store.db.connect() as connection:
        await connection.execute(_END, {**bound, "until_ms": begun.until_ms})
    return differing


async def _differing(store: OrderStore, name: str, charges: Sequence[ProviderCharge]) -> list[str]:
    """Wakes the orders of these charges that differ from our ledger."""
    bound = {"provider": name, "charges": orjson.dumps(charges).decode()}
    async with store.db.connect() as connection:
        differing = list((await connection.execute(_DIFFERING, bound)).scalars())
    woken = await store.wake(differing, sync=True) if differing else []  # another shop may use the account
    if woken:
        log.warning("provider.differs", provider=name, orders=len(woken), first=woken[0])
    return woken
