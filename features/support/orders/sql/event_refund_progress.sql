-- The latest refund of an event, and all that the event has by status: its refunds and its orders. No row if none was
-- requested.
WITH refunds AS (
    SELECT r.status, count(*) AS n, sum(r.amount_minor) AS minor
    FROM orders.refund r JOIN orders."order" o USING (reference) WHERE o.event_id = :event_id GROUP BY 1
), counted AS (
    SELECT status, count(*) AS n FROM orders."order" WHERE event_id = :event_id GROUP BY 1
)
SELECT e.event_id, e.status, e.rate_per_s, e.return_to_sale, e.reason, e.requested_by AS asked_by, e.refunds AS asked,
    e.cancelled, e.started_at, e.ended_at,
    (SELECT coalesce(jsonb_object_agg(status, jsonb_build_object('count', n, 'amount_minor', minor)), '{}') FROM refunds) AS refunds,
    (SELECT coalesce(jsonb_object_agg(status, n), '{}') FROM counted) AS orders
FROM orders.event_refund e WHERE e.event_id = :event_id ORDER BY e.id DESC LIMIT 1
