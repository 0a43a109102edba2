"""What a provider answers after an unclear call decides: a charge that is there is no failure, a stray authorisation is
cancelled.
"""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.orders.order.customers import Customer
from services.orders.order.updates import Lease
from services.orders.payments.charge import ChargeExecutor, no_failpoint
from services.orders.payments.provider import OutcomeUnknown, ProviderCharge, WebhookEvent
from services.orders.payments.webhook_inbox import Webhook, WebhookInbox, _verify
from services.orders.problems import BadSignature
from services.orders.tuning import DEFAULTS
from tests.orders.processing.test_states import ATTEMPT, ORDER

LEASE = Lease("R", "me", 1.0)
CHARGE = ProviderCharge(
    charge_ref="c1", reference="R", key="R:1", status="processing", amount_minor=100, currency="EUR", occurred_at_ms=1
)


def executor(order: Any, **calls: Any) -> ChargeExecutor:
    """With a provider that answers these calls."""
    repository = SimpleNamespace(write=AsyncMock(), read_leased=AsyncMock(return_value=order))
    show = SimpleNamespace(event_id="e", name="Night", starts_at=None, venue="", timezone="UTC")
    shows = SimpleNamespace(read=AsyncMock(return_value=show))
    provider = SimpleNamespace(**{name: AsyncMock(**behaviour) for name, behaviour in calls.items()})
    collaborators: dict[str, Any] = {"repository": repository, "providers": {"sandbox": provider}, "shows": shows}
    return ChargeExecutor(
        **collaborators,
        payment_retries=DEFAULTS.payment_retries,
        failpoint=no_failpoint,
        queue_mail=lambda *_, **__: None,
    )


async def test_a_charge_found_after_an_error_counts_as_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orders.payments.charge._charge_request", lambda *_: None)
    order = replace(ORDER, attempts=(replace(ATTEMPT, status="unknown"),))
    for found, errors in (([CHARGE], 0), ([], 1)):
        charges = executor(order, create={"side_effect": OutcomeUnknown}, find={"return_value": found})
        [outcome] = await asyncio.gather(charges.charge(LEASE, order), return_exceptions=True)
        assert isinstance(outcome, OutcomeUnknown) == bool(errors)
        written = [call.args[0].attempts[1].errors for call in charges.repository.write.await_args_list]  # type: ignore[attr-defined]
        assert max(written) == errors


async def test_a_charge_is_written_down_as_unknown_before_the_provider_is_called() -> None:
    order = replace(ORDER, attempts=(ATTEMPT,))
    charges = executor(order, create={"side_effect": AssertionError("called")})
    [stopped] = await asyncio.gather(charges.charge(LEASE, order), return_exceptions=True)
    assert isinstance(stopped, AssertionError)
    [written] = charges.repository.write.await_args_list  # type: ignore[attr-defined]
    assert written.args[0].attempts[1].status == "unknown"


async def test_every_try_of_a_charge_has_the_key_of_its_attempt() -> None:
    for errors in (0, 1, 2):
        order = replace(ORDER, attempts=(replace(ATTEMPT, status="unknown", errors=errors),))
        charges = executor(order, create={"return_value": CHARGE})
        await charges.charge(LEASE, order)
        [sent] = charges.providers["sandbox"].create.await_args_list  # type: ignore[attr-defined]
        assert (sent.args[0].key, sent.args[0].amount_minor) == ("R:1", 100)


async def test_an_authorisation_of_an_ended_attempt_is_cancelled() -> None:
    order = replace(ORDER, attempts=(replace(ATTEMPT, status="failed"),))
    stray = replace(CHARGE, charge_ref="c9", key="R:0", status="authorised")
    charges = executor(
        order, find={"return_value": [stray]}, cancel={"return_value": replace(stray, status="cancelled")}
    )
    await charges.sync_provider(LEASE, order)
    assert [call.args for call in charges.providers["sandbox"].cancel.await_args_list] == [("c9",)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("field", ["webhook_id", "kind", "reference", "charge_ref", "succeeded"])
@pytest.mark.parametrize("text", ["x" * 201, "a\0b"])
def test_a_webhook_with_an_endless_id_is_refused(field: str, text: str) -> None:
    event = WebhookEvent(**{"webhook_id": "w", "kind": "k", field: text})
    provider: Any = SimpleNamespace(name="sandbox", verify_webhook=lambda *_, **__: event)
    with pytest.raises(BadSignature):
        _verify(provider, {}, b"")


async def test_a_webhook_is_stored_and_applied_once(postgres) -> None:
    woken = list[bool]()
    inbox = WebhookInbox(postgres.execution_options(isolation_level="AUTOCOMMIT"), lambda: woken.append(True))
    event = WebhookEvent(webhook_id="w", kind="k", reference="R")
    for _ in range(3):
        await inbox._store([Webhook("sandbox", event, b"{}")])
    assert woken == [True], "a webhook that is known wakes nobody"


def test_an_order_of_another_event_is_not_owned() -> None:
    assert Customer("show", "ann").owns("show:ann")
    assert not Customer("show", "ann").owns("another:ann")
    assert not Customer("show", "ann").owns("show:ben")
    assert Customer(None, "user.ann").owns("another:user.ann"), "a signed-in user is the same everywhere"
