"""Every table and every statement of a sale has its shard key, `event_id` or the order's `reference`, so that a
distributed PostgreSQL can spread them (docs/operate/databases.md).
"""

import re
from pathlib import Path

from proof.plans.statements import statements
from shared.routes import SERVICES_WITH_TABLES
from tools.reference.tables import tables

ROOT = Path(__file__).parents[1]
SHARD_KEYS = {"event_id", "reference"}
WITHOUT_SHARD_KEY = {  # a few rows for the whole service, or written by operators, not by fans
    "queue.audit_log", "inventory.audit_log", "orders.audit_log", "queue.log_offset", "queue.outbox_cursor",
    "inventory.outbox_cursor", "orders.outbox_cursor", "orders.mail_opt_out", "console.used_link",
    "queue.outbox_batch", "inventory.outbox_batch", "orders.outbox_batch",  # in the order of the event log, on one node
    "orders.mail_recipient",  # by its own key, the recipient: a mailbox is written to about many events
    "orders.process", "orders.provider_comparison",  # a row a process, and two a provider
}  # fmt: skip
ACROSS_SHARDS = {
    # a request waits for it, and its row is known by another key only
    "orders sql/find_key", "inventory store.reservations.FIND_EVENTS",
    # workers that look for what is due in all events, at their own pace, and what they note about it
    "orders sql/beat", "orders sql/take_over", "orders sql/read_woken", "orders sql/read_unknown",
    "orders sql/begin_comparison", "orders sql/end_comparison", "orders sql/differing_charges",
    "orders sql/apply_webhooks", "orders sql/lease_mails", "orders sql/take_mail",
    "orders sql/claim_batch", "orders sql/lease_deliveries", "orders sql/finish_delivery",
    "orders sql/delete_old_deliveries", "orders dispatcher._ANY_SOON", "orders dispatcher._ANY_ENDPOINT",
    "inventory sql/overdue_events",
    "inventory allotments.NEXT_OPENINGS", "inventory by_code.LEFT_IN_OPEN", "inventory oversell.UPDATE_CASE",
    "inventory oversell.DUE", "inventory oversell.CLOSE_CASES",
    "inventory store.drift.DELETE_OLD_DRIFT", "inventory store.reservations.ACKNOWLEDGE_CONSENTS",
    "inventory store.reservations.PENDING_CONSENTS",
    # a fan who lost the way to their orders, after the answer was sent
    "orders sql/send_again",
    # gauges, reports and checks of all events
    "orders sql/settlement", "orders sql/settlement_types", "orders sql/compare_charges",
    "orders sql/parts_have_an_order",
    "inventory sql/count_live_holds",
    "inventory oversell.COUNT_WAITING", "queue bypass.LOWEST_ROLLOUT",
    # of a table that every shard has
    "queue line.invariants.AUDIT_LOG", "queue autotune.ADJUSTED_RECENTLY",
}  # fmt: skip
IN_ROWS = {  # the key is a field of each row that is passed as JSON
    "orders sql/insert", "orders sql/insert redemptions", "orders sql/queue_deliveries",
}  # fmt: skip
BOUND_KEY = re.compile(r":(event_id|reference)s?\b|\$1\b")  # numbered parameters begin with the event


def test_every_table_of_a_sale_has_a_shard_key() -> None:
    found = [table for service in SERVICES_WITH_TABLES for table in tables(service)]
    without = {table.fullname for table in found if not SHARD_KEYS & set(table.columns.keys())}
    assert without == WITHOUT_SHARD_KEY


def test_every_statement_is_given_the_shard_key() -> None:
    """A key that is only joined or returned routes nothing: it must be among the parameters. Every exception is a
    statement.
    """
    without = {
        f"{service} {name}"
        for service in SERVICES_WITH_TABLES
        for name, sql in statements(service).items()
        if BOUND_KEY.search(re.sub(r"--.*", "", sql)) is None
    }
    assert without == ACROSS_SHARDS | IN_ROWS


def test_the_guide_lists_the_tables_that_are_copied_to_every_shard() -> None:
    guide = (ROOT / "docs" / "operate" / "databases.md").read_text()
    assert [name for name in WITHOUT_SHARD_KEY if name.partition(".")[2] not in guide] == []
