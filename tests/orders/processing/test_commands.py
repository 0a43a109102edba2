"""The command log: every step of an order with its cause and its error; commands can be replayed."""

from services.orders.payments.provider import ProviderRejected
from tests.orders.holds import EVENT
from tests.orders.shop import ADMIN_SECRET, VIEWER_SECRET, pass_of
from tests.support.wait import wait_until

OPERATOR = {"authorization": f"Bearer {ADMIN_SECRET}"}
VIEWER = {"authorization": f"Bearer {VIEWER_SECRET}"}
COMMANDS = "/admin/orders/commands"
NOBODY = "00000000-0000-0000-0000-000000000000"


async def commands(shop, **params):
    answer = await shop.http.get(COMMANDS, params=params, headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return answer.json()["commands"]


async def told(shop, reference):
    """Type, status and cause of each command."""
    found = await commands(shop, reference=reference)
    return {(one["command_type"], one["status"], one["caused_by"]) for one in found}


async def rerun(shop, command, **headers):
    path = f"{COMMANDS}/{command['command_id']}/rerun"
    return await shop.http.post(path, json={"reason": "the fan calls"}, headers=headers or OPERATOR)


async def test_every_step_of_a_purchase_is_told(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    bought = {("reserve", "completed", "fan"), ("checkout", "completed", "fan"), ("confirm", "completed", "payment")}
    assert await told(shop, reference) == bought
    body = {"reason": "asked nicely"}
    await shop.http.post(f"/admin/orders/{reference}/refund", json=body, headers=OPERATOR)
    await shop.settled(reference, "refunded")
    assert await told(shop, reference) == bought | {("refund", "completed", "ops")}
    assert all(one["attempts"] == 1 and one["processed_at"] for one in await commands(shop, reference=reference))


async def test_how_an_order_ended_is_told_with_what_ended_it(shop):
    lapsed = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(lapsed, "failed"))
    [charging] = [one for one in await commands(shop, reference=lapsed) if one["command_type"] == "checkout"]
    assert (charging["status"], charging["error_message"]) == ("failed", (await shop.row(lapsed)).attempt.reason)
    payment = {"payment": {"provider": "sandbox", "method": "redirect", "return_url": "http://shop/back"}}
    head = {"authorization": f"Bearer {pass_of()}", "idempotency-key": "second"}
    await shop.http.post(f"/orders/{lapsed}/payments", json=payment, headers=head)
    await wait_until(lambda: shop.attempt_is(lapsed, "requires_action"))
    await shop.expire(lapsed)
    await shop.settled(lapsed, "expired")
    assert ("cancel", "completed", "deadline") in await told(shop, lapsed)
    charged = [one for one in await commands(shop, reference=lapsed) if one["command_type"] == "checkout"]
    assert {one["status"] for one in charged} == {"failed"}
    assert len(charged) == 2


async def test_tries_that_come_to_nothing_are_counted_with_their_error(shop):
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    reference = await shop.order()

    async def tried_often():
        [charging] = [one for one in await commands(shop, status="processing") if one["command_type"] == "checkout"]
        return charging["attempts"] >= 2 and charging["error_message"]

    await wait_until(tried_often)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    await shop.settled(reference, "confirmed")


async def test_commands_are_found_by_event_order_and_status_page_by_page(shop):
    mine, other = await shop.order(), await shop.order(method="decline")
    await shop.settled(mine, "confirmed")
    await wait_until(lambda: shop.attempt_is(other, "failed"))
    assert {one["reference"] for one in await commands(shop, status="failed")} == {other}
    assert {one["reference"] for one in await commands(shop, event_id=EVENT)} == {mine, other}
    assert await commands(shop, event_id="another") == []
    pages = [await commands(shop, page=page, page_size=2) for page in (1, 2, 3)]
    assert len({one["command_id"] for page in pages for one in page}) == 5
    for wrong in ({"page_size": 1000}, {"status": "odd"}, {"reference": "x"}, {"page": 0}):
        assert (await shop.http.get(COMMANDS, params=wrong, headers=VIEWER)).status_code == 422


async def test_a_command_runs_again_now_instead_of_at_its_next_try(processes):
    shop = await processes.open(retry_first_s=60.0, retry_max_s=600.0)
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    reference = await shop.order()

    async def put_off():
        return any(one["error_message"] for one in await commands(shop, reference=reference))

    await wait_until(put_off)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    [charging] = [one for one in await commands(shop, reference=reference) if one["command_type"] == "checkout"]
    again = [await rerun(shop, charging) for _ in range(2)]
    assert [answer.status_code for answer in again] == [202, 202]
    assert again[0].json()["command_id"] == again[1].json()["command_id"], "while it runs it is one run"
    await shop.settled(reference, "confirmed", timeout_s=5)
    runs = [one for one in await commands(shop, reference=reference) if one["caused_by"] == "operator:ops"]
    assert [(one["status"], one["payload"]["rerun_of"]) for one in runs] == [("completed", charging["command_id"])]
    subject = {"subject": f"order:{reference}"}
    [line] = (await shop.http.get("/admin/orders/changes", params=subject, headers=VIEWER)).json()["changes"]
    assert (line["actor"], line["action"], line["reason"]) == ("ops", "rerun", "the fan calls")
    assert line["before"]["command_id"] == charging["command_id"]


async def test_an_ended_order_is_looked_at_again_and_the_run_ends(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    await shop.expire(reference)
    await shop.settled(reference, "expired")
    [charging] = [one for one in await commands(shop, reference=reference) if one["command_type"] == "checkout"]
    run = (await rerun(shop, charging)).json()

    async def is_over():
        return {one["command_id"]: one["status"] for one in await commands(shop, reference=reference)}[
            run["command_id"]
        ] == "completed"

    await wait_until(is_over)
    assert await shop.status(reference) == "expired"


async def test_a_refund_the_provider_refused_waits_for_a_person_and_is_not_run_again(shop, monkeypatch):
    provider, refusals = shop.app.state.deps.providers["sandbox"], ["charge_disputed"]
    ask = provider.refund

    async def refuse_once(*args, **options):
        if refusals:
            raise ProviderRejected(refusals.pop())
        return await ask(*args, **options)

    monkeypatch.setattr(provider, "refund", refuse_once)
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    body = {"reason": "asked nicely"}
    await shop.http.post(f"/admin/orders/{reference}/refund", json=body, headers=OPERATOR)
    await wait_until(lambda: commands(shop, reference=reference, status="failed"))
    [refused] = await commands(shop, reference=reference, status="failed")
    assert refused["error_message"] == "charge_disputed"
    assert (await rerun(shop, refused)).status_code == 409
    decided = {"decision": "refund", "reason": "their bank agrees now"}
    assert (await shop.http.post(f"/admin/orders/{reference}/resolve", json=decided, headers=OPERATOR)).is_success
    await shop.settled(reference, "refunded")
    assert await shop.audit() == {}


async def test_what_would_do_nothing_is_refused_and_changes_nothing(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    before = await commands(shop, reference=reference)
    [done] = [one for one in before if one["command_type"] == "checkout"]
    answer = await rerun(shop, done)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/not-replayable")
    await shop.run("UPDATE orders.checkout_command SET status = 'failed', command_type = 'refund'")
    assert (await rerun(shop, done)).status_code == 409, "no refund was ever refused"
    await shop.run("UPDATE orders.checkout_command SET command_type = 'cancel'")
    assert (await rerun(shop, done)).json()["order_status"] == "confirmed"
    answer = await rerun(shop, {"command_id": NOBODY})
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-command")
    assert (await rerun(shop, {"command_id": "x"})).status_code == 422
    assert (await rerun(shop, done, **VIEWER)).status_code == 403
    path = f"{COMMANDS}/{done['command_id']}/rerun"
    assert (await shop.http.post(path, json={}, headers=OPERATOR)).status_code == 422, "without a reason"
    assert len(await commands(shop, reference=reference)) == len(before)
