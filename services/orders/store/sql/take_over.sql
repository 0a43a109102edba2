-- Takes over up to :many open orders of owners that are not alive, or of nobody; of each event those that came first. Whatever
-- their owner still sends about them is refused, as their epoch has risen.
WITH taken AS (
    SELECT p.reference FROM orders.open_order p
    WHERE p.owner = ANY(CAST(:dead AS text[])) AND NOT EXISTS (
        SELECT FROM orders.process a
        WHERE a.owner = p.owner AND a.beat_at > clock_timestamp() - make_interval(secs => :takeover_s))
    ORDER BY p.join_seq, p.reference LIMIT :many
    FOR UPDATE SKIP LOCKED
)
UPDATE orders.open_order p SET owner = :owner, epoch = p.epoch + 1, woken = false
FROM taken WHERE p.reference = taken.reference
RETURNING p.reference, p.owner, p.epoch, p.event_id, p.join_seq,
    greatest(0, extract(epoch FROM p.due_at - clock_timestamp()))::double precision AS due_in_s
