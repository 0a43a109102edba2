-- Locks reservations in the order of their key; returns PostgreSQL's clock in ms.
WITH locked AS MATERIALIZED (
    SELECT reservation_id FROM inventory.reservation
    WHERE reservation_id = ANY(CAST(:ids AS text[]))
    ORDER BY reservation_id
    FOR UPDATE
)
SELECT count(*) AS reservations, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms FROM locked
