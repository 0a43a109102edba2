"""What must be over soon after a sale has healed, by the database: nothing waits for ever, nothing is overdue.

It is no check of histories: those are checked after a suite has stopped, too, and then nothing is repaired any more.
"""

from collections.abc import Mapping

from proof.swarm.site import Site

UNREAD = "SELECT count(*) FROM {0}.outbox_batch WHERE id > (SELECT coalesce(min(id), 0) FROM {0}.outbox_cursor)"
OVERDUE_MS = "(extract(epoch FROM now()) - 15) * 1000"
LEFT: Mapping[str, str] = {
    "events of the queue not read": UNREAD.format("queue"),
    "events of inventory not read": UNREAD.format("inventory"),
    "events of orders not read": UNREAD.format("orders"),
    "webhooks not delivered": "SELECT count(*) FROM orders.webhook_delivery WHERE status <> 'delivered'",
    "mails neither sent nor given up":
        "SELECT count(*) FROM orders.mail WHERE sent_at IS NULL AND abandoned_at IS NULL AND due_at < now()",
    "confirmed orders without tickets":
        "SELECT count(*) FROM orders.\"order\" WHERE confirmed_at IS NOT NULL AND fulfilled_at IS NULL",
    "confirmed orders without a webhook":
        "SELECT count(*) FROM orders.\"order\" o WHERE confirmed_at IS NOT NULL AND NOT EXISTS "
        "(SELECT FROM orders.webhook_delivery d WHERE d.reference = o.reference AND d.kind = 'order.confirmed')",
    "orders pending 15 s after their deadline":
        "SELECT count(*) FROM orders.\"order\" WHERE status = 'pending' AND expires_at < now() - interval '15 s'",
    "holds 15 s after their deadline":
        "SELECT count(*) FROM inventory.reservation WHERE status = 'pending_payment' AND "
        f"reserved_until_ms < {OVERDUE_MS}",
    "calls 15 s after their deadline":
        "SELECT count(*) FROM queue.admission JOIN queue.place USING (event_id, epoch, lane, join_seq) "
        f"WHERE ended_at IS NULL AND state = 'called' AND deadline_ms < {OVERDUE_MS}",
}  # fmt: skip


async def left_over(site: Site) -> list[str]:
    """What is not over, with its number."""
    counts = {what: (await site.query(query))[0][0] for what, query in LEFT.items()}
    return [f"{count} {what}" for what, count in counts.items() if count]
