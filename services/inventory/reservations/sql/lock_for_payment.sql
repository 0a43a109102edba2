-- Locks reservations for payment, then one row per customer and event (or tour), each in the order of its key, so that
-- concurrent payments of one customer are serialised over all events of a tour. Returns the reservations with their number
-- of tickets, and PostgreSQL's clock in ms; at least one row.
WITH locked AS MATERIALIZED (
    SELECT r.* FROM inventory.reservation r
    JOIN (SELECT event_id, reservation_id FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[]))
          AS a (event_id, reservation_id) OFFSET 0) AS requested USING (event_id, reservation_id)
    ORDER BY r.reservation_id
    FOR UPDATE OF r
), customers AS (
    INSERT INTO inventory.customer_usage (event_id, customer_key, payments_begun)
    SELECT coalesce('tour:' || e.tour_id, e.event_id) AS scope, requested.customer_key, 1
    FROM locked l JOIN inventory.event e USING (event_id)
    JOIN unnest(CAST(:ids AS text[]), CAST(:customer_keys AS text[])) AS requested (reservation_id, customer_key)
        USING (reservation_id)
    WHERE requested.customer_key IS NOT NULL
    GROUP BY 1, requested.customer_key
    ORDER BY 1, requested.customer_key
    ON CONFLICT (event_id, customer_key) DO UPDATE SET payments_begun = inventory.customer_usage.payments_begun + 1
    RETURNING customer_key
)
SELECT (SELECT count(*) FROM customers) AS customers,
       CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms,
       r.event_id, r.reservation_id, r.holder, r.status, r.lane, r.join_seq, r.total_minor, r.currency,
       r.reserved_until_ms, e.grace_s, r.order_reference, r.fingerprint, r.extended, r.payment_extended, r.version, r.released_tickets,
       (SELECT count(*) FROM inventory.reservation_seat x
        WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id)
       + (SELECT coalesce(sum(x.quantity), 0) FROM inventory.reservation_ga x
          WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS quantity
FROM (VALUES (1)) AS once LEFT JOIN locked r ON true LEFT JOIN inventory.event e ON e.event_id = r.event_id
