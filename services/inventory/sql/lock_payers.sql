-- Reservations about to be paid, then one row a customer, each locked in the order of its key, so that parallel payments of
-- one customer take turns; then the ledger's clock, in milliseconds.
WITH locked AS MATERIALIZED (
    SELECT event_id, reservation_id FROM inventory.reservation
    WHERE reservation_id = ANY(CAST(:ids AS text[]))
    ORDER BY reservation_id
    FOR UPDATE
), customers AS (
    INSERT INTO inventory.customer_usage (event_id, customer_key, payments_begun)
    SELECT l.event_id, asked.customer_key, 1
    FROM locked l
    JOIN unnest(CAST(:ids AS text[]), CAST(:customer_keys AS text[])) AS asked (reservation_id, customer_key)
        USING (reservation_id)
    WHERE asked.customer_key IS NOT NULL
    GROUP BY l.event_id, asked.customer_key
    ORDER BY l.event_id, asked.customer_key
    ON CONFLICT (event_id, customer_key) DO UPDATE SET payments_begun = inventory.customer_usage.payments_begun + 1
    RETURNING customer_key
)
SELECT (SELECT count(*) FROM locked) AS reservations, (SELECT count(*) FROM customers) AS customers,
       CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms
