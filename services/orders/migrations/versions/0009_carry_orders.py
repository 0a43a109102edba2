"""Carries the orders of 0.1.0 over, in pieces that are committed one by one: interrupted, it goes on where it was."""

from pathlib import Path

from alembic import op
from sqlalchemy import text

from shared.postgres.migrations import run_script
from shared.runtime.logging import get_logger

revision = "0009"
down_revision = "0008"
PIECE = 2_000
log = get_logger("onsale.migrate")

# The id of a ticket as the code computes it: 60 bits of a hash, five at a time from the lowest.
TICKET_ID = """
CREATE OR REPLACE FUNCTION orders_0_1.ticket_id(reference text, line_no integer, n integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(substr('ABCDEFGHJKMNPQRSTVWXYZ0123456789', 1 + ((h.bits >> (5 * p)) & 31)::integer, 1), ''
        ORDER BY p)
    FROM (
        SELECT ('x' || encode(substr(sha256(convert_to(concat_ws(':', 'ticket', reference, line_no, n), 'UTF8')), 1, 8),
            'hex'))::bit(64)::bigint AS bits
    ) AS h, generate_series(0, 11) AS p
$$"""
# A command's id tells its order and its place in the journal.
COMMAND_IDS = """
UPDATE orders.refund r SET command_id = (
    rpad(encode(convert_to(c.reference, 'UTF8'), 'hex'), 24, '0') || lpad(to_hex(c.place), 8, '0'))::uuid
FROM (
    SELECT k.command_id, k.reference,
        row_number() OVER (PARTITION BY k.reference ORDER BY k.created_at, k.command_id) AS place
    FROM orders_0_1.checkout_command k
    WHERE k.reference IN (SELECT reference FROM orders.refund WHERE command_id IS NOT NULL)
) AS c
WHERE r.command_id = c.command_id"""
REFUND_KEYS = """
UPDATE orders.refund r SET key_hash = encode(k.key_hash, 'hex'), fingerprint = encode(k.fingerprint, 'hex')
FROM orders_0_1.idempotency k
WHERE k.scope = concat('POST /admin/orders/', r.reference, '/refund') AND k.created_at = r.created_at"""


def upgrade() -> None:
    carry = text(Path(__file__).with_suffix(".sql").read_text())
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        connection.execute(text(TICKET_ID))
        total = connection.scalar(text('SELECT count(*) FROM orders_0_1."order"')) or 0
        after = connection.scalar(text("SELECT coalesce(max(reference), '') FROM orders.\"order\""))
        done = connection.scalar(text('SELECT count(*) FROM orders."order"')) or 0
        while last := connection.scalar(carry, {"after": after, "count_max": PIECE}):
            after, done = last, min(total, done + PIECE)
            log.info("migrate.orders_carried", done=done, total=total)
        connection.execute(text(REFUND_KEYS))
        connection.execute(text(COMMAND_IDS))
    run_script("DROP SCHEMA orders_0_1 CASCADE")


def downgrade() -> None:
    raise RuntimeError("Orders of this version cannot become those of 0.1.0 again. Restore the backup.")
