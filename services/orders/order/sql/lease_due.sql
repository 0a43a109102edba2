-- Leases up to :many due orders. Events alternate (those with fewer leased orders first). Within an event the lowest
-- join_seq of the 500 longest due goes first, and no event has more than :event_max leased orders. Those for which nobody
-- waits come last, and no event has more than :routine_max of them leased.
-- An attempt still `created`, of an order that may be charged now, becomes `unknown` in the same statement: the worker
-- calls the provider next. `is_first_call` is true for these. Attempts are found by an array of references: by a join
-- the planner would read the whole index of live ones, with all its dead entries since the last vacuum.
WITH RECURSIVE events AS (
    (SELECT event_id FROM orders."order" WHERE due_at IS NOT NULL ORDER BY event_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT o.event_id FROM orders."order" o
        WHERE o.due_at IS NOT NULL AND o.event_id > e.event_id ORDER BY o.event_id LIMIT 1
    )
    FROM events e WHERE e.event_id IS NOT NULL
), candidates AS (
    SELECT c.reference, b.leased + row_number() OVER (PARTITION BY e.event_id ORDER BY c.routine, c.join_seq) AS rank, c.due_at
    FROM events e
    CROSS JOIN LATERAL (
        SELECT count(*) AS leased, count(*) FILTER (WHERE o.routine) AS routine FROM orders."order" o
        WHERE o.event_id = e.event_id AND o.lease IS NOT NULL AND o.lease_until > now()
    ) b
    CROSS JOIN LATERAL (
        (SELECT d.reference, d.join_seq, d.due_at, d.routine FROM (
            SELECT o.reference, o.join_seq, o.due_at, o.routine FROM orders."order" o
            WHERE o.event_id = e.event_id AND o.due_at <= now() AND NOT o.routine
                AND (o.lease IS NULL OR o.lease_until < now())
            ORDER BY o.due_at LIMIT 500
        ) d
        ORDER BY d.join_seq
        LIMIT greatest(0, least(CAST(:many AS integer), CAST(:event_max AS integer) - b.leased)))
        UNION ALL
        (SELECT o.reference, o.join_seq, o.due_at, o.routine FROM orders."order" o
        WHERE o.event_id = e.event_id AND o.due_at <= now() AND o.routine
            AND (o.lease IS NULL OR o.lease_until < now())
        ORDER BY o.due_at
        LIMIT greatest(0, least(CAST(:many AS integer), CAST(:routine_max AS integer) - b.routine)))
    ) c
    WHERE e.event_id IS NOT NULL
    ORDER BY rank, due_at
    LIMIT CAST(:many AS integer)
), locked AS (
    SELECT o.reference FROM orders."order" o JOIN candidates c USING (reference)
    WHERE o.lease IS NULL OR o.lease_until < now()
    FOR UPDATE OF o SKIP LOCKED
), leased AS (
    UPDATE orders."order" o
    SET lease = :lease, lease_until = now() + make_interval(secs => :lease_s)
    FROM locked WHERE o.reference = locked.reference
    RETURNING o.reference, o.status = 'pending' AS is_pending,
        o.status = 'pending' AND o.cancel_requested_at IS NULL AND o.expires_at > now() AS may_charge
), tried AS (
    UPDATE orders.payment_attempt p
    SET status = 'unknown', changed_at = clock_timestamp()
    WHERE p.reference = ANY(ARRAY(SELECT t.reference FROM leased t WHERE t.may_charge)) AND p.status = 'created'
    RETURNING p.reference
)
SELECT t.reference, a.reference IS NOT NULL AS is_first_call, t.is_pending
FROM leased t LEFT JOIN tried a ON a.reference = t.reference
