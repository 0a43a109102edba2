"""Event files and comparisons stand in the audit log with their reason; others: proof/browser/console."""

from tests.support.running.suite import RunningSuite


async def test_an_event_file_and_a_comparison_are_logged_with_their_reason(suite: RunningSuite) -> None:
    event_id = await suite.open_event(reason="a new hall")
    async with suite.operator() as operator:
        compare = f"/admin/inventory/events/{event_id}/reconcile"
        for answer in (await operator.post(compare, json={"reason": "a rumour"}), await operator.post(compare)):
            assert answer.is_success, answer.text
        logs = {
            f"/admin/inventory/events/{event_id}/changes": {("apply", "a new hall"), ("reconcile", "a rumour")},
            f"/admin/queue/events/{event_id}/changes": {("create", "a new hall")},
            f"/admin/orders/events/{event_id}/price-changes": {("apply", "a new hall")},
        }
        for path, expected in logs.items():
            entries = (await operator.get(path)).json()["changes"]
            assert {(entry["action"], entry["reason"]) for entry in entries} >= expected, path
