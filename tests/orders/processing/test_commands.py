"""The command log: it has every step of an order with its cause and error, and operators replay commands."""

from shared.payment_provider import ProviderRejected
from tests.orders.inventory import EVENT
from tests.orders.shop import OPERATOR, VIEWER
from tests.support.running.suite import problem
from tests.support.wait import wait_until

COMMANDS = "/admin/orders/commands"
UNKNOWN = "00000000-0000-0000-0000-000000000000"


async def commands(shop, **params):
    answer = await shop.http.get(COMMANDS, params=params, headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return answer.json()["commands"]


async def checkouts(shop, **params):
    return [each for each in await commands(shop, **params) if each["command_type"] == "checkout"]


async def causes(shop, reference):
    """Type, status and cause of each command."""
    found = await commands(shop, reference=reference)
    return {(each["command_type"], each["status"], each["caused_by"]) for each in found}


async def replay(shop, command, **headers):
    path = f"{COMMANDS}/{command['command_id']}/rerun"
    return await shop.http.post(path, json={"reason": "the fan calls"}, headers=headers or OPERATOR)


async def test_every_step_of_a_purchase_is_in_the_command_log(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    bought = {("reserve", "completed", "fan"), ("checkout", "completed", "fan"), ("confirm", "completed", "payment")}
    assert await causes(shop, reference) == bought
    await shop.admin_post(f"{reference}/refund")
    await shop.wait_until_settled(reference, "refunded")
    assert await causes(shop, reference) == bought | {("refund", "completed", "ops")}
    assert all(each["attempts"] == 1 and each["processed_at"] for each in await commands(shop, reference=reference))


async def test_the_command_log_names_the_cause_of_an_ending_and_a_replay_changes_nothing(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    [checkout] = await checkouts(shop, reference=reference)
    assert (checkout["status"], checkout["error_message"]) == ("failed", (await shop.row(reference)).attempt.reason)
    await shop.pay_again(reference, method="redirect", return_url="http://shop/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await shop.expire(reference)
    await shop.wait_until_settled(reference, "expired")
    assert ("cancel", "completed", "deadline") in await causes(shop, reference)
    assert [each["status"] for each in await checkouts(shop, reference=reference)] == ["failed"] * 2
    assert (await replay(shop, checkout)).status_code == 202

    async def completed():
        return ("checkout", "completed", "operator:ops") in await causes(shop, reference)

    await wait_until(completed)
    assert await shop.status(reference) == "expired"


async def test_commands_are_listed_by_event_order_and_status_in_pages(shop):
    mine, other = await shop.order(), await shop.order(method="decline")
    await shop.wait_until_settled(mine, "confirmed")
    await wait_until(lambda: shop.attempt_is(other, "failed"))
    assert {each["reference"] for each in await commands(shop, status="failed")} == {other}
    assert {each["reference"] for each in await commands(shop, event_id=EVENT)} == {mine, other}
    assert await commands(shop, event_id="another") == []
    address, listed = f"{COMMANDS}?page_size=2", []
    while address:
        page = (await shop.http.get(address, headers=VIEWER)).json()
        listed += [each["command_id"] for each in page["commands"]]
        address = page["next"]
    assert listed == [each["command_id"] for each in await commands(shop)]
    for wrong in ({"page_size": 1000}, {"status": "odd"}, {"reference": "x"}, {"before": "1"}):
        assert (await shop.http.get(COMMANDS, params=wrong, headers=VIEWER)).status_code == 422


async def test_a_failed_try_is_counted_with_its_error_and_a_replay_runs_before_the_next(processes, monkeypatch):
    shop = await processes.open(retry_first_s=60.0, retry_max_s=600.0)
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    reference = await shop.order()

    async def failed_try():
        return [each for each in await checkouts(shop, status="processing") if each["error_message"]]

    await wait_until(failed_try)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    [checkout] = await failed_try()
    assert checkout["attempts"] == 1
    with monkeypatch.context() as patch:
        patch.setattr(shop.state.worker, "_workers_max", 0)  # the first replay is not done before the second is asked
        answers = [await replay(shop, checkout) for _ in range(2)]
    shop.state.worker.begin_ready()
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len({answer.json()["command_id"] for answer in answers}) == 1, "the second joins the first replay"
    await shop.wait_until_settled(reference, "confirmed", timeout_s=30)
    runs = [each for each in await commands(shop, reference=reference) if each["caused_by"] == "operator:ops"]
    assert [(run["status"], run["payload"]["rerun_of"]) for run in runs] == [("completed", checkout["command_id"])]
    tries = {each["command_id"]: each["attempts"] for each in await checkouts(shop, status="completed")}
    assert tries[checkout["command_id"]] == 2
    subject = {"subject": f"order:{reference}"}
    [line] = (await shop.http.get("/admin/orders/changes", params=subject, headers=VIEWER)).json()["changes"]
    assert (line["actor"], line["action"], line["reason"]) == ("ops", "rerun", "the fan calls")
    assert line["before"]["command_id"] == checkout["command_id"]


async def test_a_rejected_refund_goes_to_review_and_cannot_be_replayed(shop, monkeypatch):
    provider, rejections = shop.state.providers["sandbox"], ["charge_disputed"]
    refund = provider.refund

    async def reject_once(*args, **options):
        if rejections:
            raise ProviderRejected(rejections.pop())
        return await refund(*args, **options)

    monkeypatch.setattr(provider, "refund", reject_once)
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    await shop.admin_post(f"{reference}/refund")
    await wait_until(lambda: commands(shop, reference=reference, status="failed"))
    [rejected] = await commands(shop, reference=reference, status="failed")
    assert rejected["error_message"] == "charge_disputed"
    assert (await replay(shop, rejected)).status_code == 409
    assert (await shop.admin_post(f"{reference}/resolve", decision="refund")).is_success
    await shop.wait_until_settled(reference, "refunded")
    assert await shop.violated_invariants() == {}


async def test_a_replay_without_effect_is_refused(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    before = await commands(shop, reference=reference)
    [checkout] = await checkouts(shop, reference=reference)
    answer = await replay(shop, checkout)
    assert problem(answer) == (409, "not-replayable")
    place = [command.type for command in (await shop.row(reference)).journal].index("checkout")
    await shop.change_parts(reference, "journal", lambda journal: journal[place].update(status="failed", type="refund"))
    assert (await replay(shop, checkout)).status_code == 409, "no refund was rejected"
    await shop.change_parts(reference, "journal", lambda journal: journal[place].update(type="cancel"))
    assert (await replay(shop, checkout)).json()["order_status"] == "confirmed"
    answer = await replay(shop, {"command_id": UNKNOWN})
    assert problem(answer) == (404, "unknown-command")
    assert (await replay(shop, {"command_id": "x"})).status_code == 422
    assert (await replay(shop, checkout, **VIEWER)).status_code == 403
    path = f"{COMMANDS}/{checkout['command_id']}/rerun"
    assert (await shop.http.post(path, json={}, headers=OPERATOR)).status_code == 422, "without a reason"
    assert len(await commands(shop, reference=reference)) == len(before)
