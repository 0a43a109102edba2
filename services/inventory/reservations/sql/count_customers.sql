-- Reservations that these customers are paying for or bought, over all their holders, at the event and the others of its
-- tour. Runs after the statement that locks them. Each customer is looked up by itself (`OFFSET 0` keeps it so): joined, the
-- planner reads every customer the event ever had.
SELECT requested.event_id, requested.customer_key, r.event_id AS bought_at, r.reservation_id, r.status,
       (SELECT count(*) FROM inventory.reservation_seat x
        WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id)
       + (SELECT coalesce(sum(x.quantity), 0) FROM inventory.reservation_ga x
          WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS tickets
FROM (SELECT DISTINCT event_id, customer_key
      FROM unnest(CAST(:event_ids AS text[]), CAST(:customer_keys AS text[])) AS a (event_id, customer_key)) AS requested
CROSS JOIN LATERAL (
    SELECT requested.event_id
    UNION
    SELECT other.event_id FROM inventory.event e JOIN inventory.event other USING (tour_id) WHERE e.event_id = requested.event_id
) AS at
CROSS JOIN LATERAL (
    SELECT r.event_id, r.reservation_id, r.status
    FROM inventory.reservation r
    WHERE r.event_id = at.event_id AND r.customer_key = requested.customer_key AND r.status IN ('paying', 'confirmed')
    OFFSET 0
) AS r
