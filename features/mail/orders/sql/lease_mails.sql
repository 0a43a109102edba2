-- Leases up to :many due mails by moving their due time: after a crash they are due again when the lease ends.
WITH due AS (
    SELECT m.mail_key FROM orders.mail m
    WHERE m.sent_at IS NULL AND m.abandoned_at IS NULL AND m.due_at <= now()
    ORDER BY m.due_at LIMIT CAST(:many AS integer) FOR UPDATE SKIP LOCKED
)
UPDATE orders.mail m SET due_at = now() + make_interval(secs => :lease_s)
FROM due WHERE m.mail_key = due.mail_key
RETURNING m.mail_key, m.kind, m.address, m.event_id, m.reference, m.reservation_id, m.amount_minor, m.language, m.budget,
    m.created_at, m.tries, extract(epoch FROM now() - m.created_at)::double precision AS age_s
