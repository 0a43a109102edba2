-- Locks reservations in the order of their key; returns PostgreSQL's clock in ms.
WITH locked AS MATERIALIZED (
    SELECT r.reservation_id FROM inventory.reservation r
    JOIN (SELECT event_id, reservation_id FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[]))
          AS a (event_id, reservation_id) OFFSET 0) AS requested USING (event_id, reservation_id)
    ORDER BY r.reservation_id
    FOR UPDATE OF r
)
SELECT count(*) AS reservations, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms FROM locked
