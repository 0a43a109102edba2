-- Begins payments: locks reservations in the order of their key, decides about each, binds those that may be paid to their
-- orders, and answers all of them with their places. No two steps may concern the same reservation or customer; the customers
-- were locked by an earlier statement, because this one counts what they pay for or bought in a snapshot that is older than
-- its own locks. For the same reason a reservation that changed while it was waited for is `stale`: it is locked now and left
-- as it is, and the caller takes the step again. A repeat by the same order raises the version: the request before
-- it can no longer take its payment back. Each reservation is looked up by itself.
-- All arrays are text, because for other types the driver queries the system catalogue first.
-- $1 event ids, $2 ids, $3 order references, $4 customer keys, $5 who asks, as JSON arrays of owner ids, $6 the time by the
-- slowest other clock in ms, $7 clock offset in ms
WITH locked AS MATERIALIZED (
    SELECT r.*, step.asking, step.customer, step.owner_ids
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
          AS s (event_id, reservation_id, asking, customer, owner_ids) ORDER BY reservation_id) AS step
    CROSS JOIN LATERAL (
        SELECT * FROM inventory.reservation r
        WHERE r.event_id = step.event_id AND r.reservation_id = step.reservation_id FOR UPDATE
    ) AS r
),
found AS MATERIALIZED (
    SELECT l.*, e.grace_s, e.pay_ttl_s, e.tickets_per_customer, e.open_orders_per_customer, e.tour_tickets_per_customer,
           own.seats, tickets.ga, used.*, CAST(own.n + tickets.n AS int) AS quantity,
           (SELECT seen.version FROM inventory.reservation seen
            WHERE seen.event_id = l.event_id AND seen.reservation_id = l.reservation_id) AS seen_version,
           least(CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + $7::bigint, $6::bigint) AS now_ms
    FROM locked l
    CROSS JOIN LATERAL (SELECT * FROM inventory.event e WHERE e.event_id = l.event_id OFFSET 0) AS e
    CROSS JOIN LATERAL (
        SELECT count(*) AS n,
               json_agg(json_build_array(x.section_id, x.position,
                                         concat_ws('-', x.section_id, s.row, coalesce(s.label, CAST(s.number AS text))),
                                         x.unit_price_minor, x.type_id) ORDER BY x.section_id, x.position) AS seats
        FROM inventory.reservation_seat x CROSS JOIN LATERAL (
            SELECT row, label, number FROM inventory.seat s
            WHERE s.event_id = x.event_id AND s.section_id = x.section_id AND s.position = x.position OFFSET 0
        ) AS s
        WHERE x.event_id = l.event_id AND x.reservation_id = l.reservation_id
    ) AS own
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(x.quantity), 0) AS n,
               json_agg(json_build_array(x.section_id, x.quantity, x.unit_price_minor, x.type_id)
                        ORDER BY x.section_id, x.type_id) AS ga
        FROM inventory.reservation_ga x WHERE x.event_id = l.event_id AND x.reservation_id = l.reservation_id
    ) AS tickets
    CROSS JOIN LATERAL (
        SELECT CAST(coalesce(sum(b.n) FILTER (WHERE b.event_id = l.event_id), 0) AS int) AS tickets_used,
               CAST(count(*) FILTER (WHERE b.event_id = l.event_id AND b.status = 'paying') AS int) AS orders_used,
               CAST(coalesce(sum(b.n), 0) AS int) AS tour_used
        FROM (
            SELECT l.event_id UNION SELECT other.event_id FROM inventory.event other WHERE other.tour_id = e.tour_id
        ) AS at
        CROSS JOIN LATERAL (
            SELECT b.event_id, b.status,
                   (SELECT count(*) FROM inventory.reservation_seat x
                    WHERE x.event_id = b.event_id AND x.reservation_id = b.reservation_id)
                   + (SELECT coalesce(sum(x.quantity), 0) FROM inventory.reservation_ga x
                      WHERE x.event_id = b.event_id AND x.reservation_id = b.reservation_id) AS n
            FROM inventory.reservation b
            WHERE b.event_id = at.event_id AND b.customer_key = l.customer AND b.status IN ('paying', 'confirmed') OFFSET 0
        ) AS b
        WHERE l.customer IS NOT NULL AND l.status = 'pending_payment'
    ) AS used
),
decided AS MATERIALIZED (
    SELECT f.*,
           CASE WHEN f.seen_version IS DISTINCT FROM f.version THEN 'stale'
                WHEN NOT f.owner_ids::jsonb ?| ARRAY[f.event_id || ':' || f.holder, ':' || f.holder] THEN 'stranger'
                WHEN f.status = 'paying' AND f.order_reference = f.asking THEN 'repeat'
                WHEN f.status <> 'pending_payment' THEN 'status'
                WHEN f.now_ms > f.reserved_until_ms + 1000 * f.grace_s THEN 'ended'
                WHEN f.customer IS NULL THEN NULL
                WHEN f.tickets_per_customer > 0 AND f.tickets_used + f.quantity > f.tickets_per_customer
                    THEN 'tickets_per_customer'
                WHEN f.open_orders_per_customer > 0 AND f.orders_used + 1 > f.open_orders_per_customer
                    THEN 'open_orders_per_customer'
                WHEN f.tour_tickets_per_customer > 0 AND f.tour_used + f.quantity > f.tour_tickets_per_customer
                    THEN 'tour_tickets_per_customer'
           END AS refusal,
           CASE WHEN f.payment_extended THEN f.reserved_until_ms
                ELSE greatest(f.reserved_until_ms, f.now_ms + 1000 * f.pay_ttl_s) END AS until_ms
    FROM found f
),
begun AS (
    UPDATE inventory.reservation r
    SET status = 'paying', order_reference = d.asking, customer_key = coalesce(d.customer, r.customer_key),
        reserved_until_ms = d.until_ms, payment_extended = true,
        payment_begun_at = coalesce(r.payment_begun_at, clock_timestamp()), version = r.version + 1
    FROM decided d
    WHERE r.event_id = d.event_id AND r.reservation_id = d.reservation_id AND d.refusal IS NULL
),
repeated AS (
    UPDATE inventory.reservation r SET version = r.version + 1
    FROM decided d
    WHERE r.event_id = d.event_id AND r.reservation_id = d.reservation_id AND d.refusal = 'repeat'
)
SELECT event_id, reservation_id, holder, status, lane, join_seq, total_minor, currency, reserved_until_ms, grace_s,
       order_reference, fingerprint, extended, payment_extended, version, released_tickets,
       CAST(seats AS text) AS seats, CAST(ga AS text) AS ga, refusal, until_ms,
       CASE refusal WHEN 'tickets_per_customer' THEN tickets_per_customer
                    WHEN 'open_orders_per_customer' THEN open_orders_per_customer
                    WHEN 'tour_tickets_per_customer' THEN tour_tickets_per_customer END AS allowed,
       CASE refusal WHEN 'tickets_per_customer' THEN tickets_used
                    WHEN 'open_orders_per_customer' THEN orders_used
                    WHEN 'tour_tickets_per_customer' THEN tour_used END AS used
FROM decided
