"""Fans of tests: the client's own `Fan`, each with an address of their own, who asks often and repeats no request."""

import uuid
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

import httpx

from onsale.client import Client, Fan, Pace, Problem
from onsale.client.fan_documents import CustomerDetails, Payment

EAGER = Pace(poll_max_s=0.1, order_first_s=0.05, order_max_s=0.2)


def fan_of(browser: httpx.AsyncClient, event_id: str) -> Fan:
    """A new fan, outside."""
    return Fan(client_of(browser), event_id, customer=somebody(), payment=card("ok"), pace=EAGER)


def client_of(browser: httpx.AsyncClient) -> Client:
    """The client whose requests this browser sends, each once."""
    return Client(str(browser.base_url), http=browser, attempts_max=1)


def somebody() -> CustomerDetails:
    """A customer whom no limit knows."""
    return {"name": "A fan", "email": f"{uuid.uuid4().hex}@example.org"}


def card(method: str) -> Payment:
    """A card of the sandbox, which behaves as the method says."""
    return {"provider": "sandbox", "method": method}


async def has_status(fan: Fan, status: str) -> bool:
    """Whether the place has this status, for `wait_until`."""
    return bool((await fan.status())["status"] == status)


async def refusal(request: Awaitable[object]) -> tuple[int, str]:
    """Status and slug of the problem that the request is refused with."""
    try:
        answer = await request
    except Problem as problem:
        return problem.status, problem.slug
    raise AssertionError(f"not refused: {answer}")


@contextmanager
def may_be_refused(*slugs: str) -> Iterator[None]:
    """One of these problems ends the block and is no error."""
    try:
        yield
    except Problem as problem:
        if problem.slug not in slugs:
            raise
