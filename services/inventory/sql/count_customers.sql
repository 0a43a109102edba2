-- What these customers pay for or bought, over all their holders. Read after the lock, in a statement of its own. Each is
-- looked up by itself (`OFFSET 0` keeps it so): joined, the planner reads every customer the event ever had.
SELECT asked.event_id, asked.customer_key, r.reservation_id, r.status,
       (SELECT count(*) FROM inventory.reservation_seat x
        WHERE x.event_id = asked.event_id AND x.reservation_id = r.reservation_id)
       + (SELECT coalesce(sum(x.quantity), 0) FROM inventory.reservation_ga x
          WHERE x.event_id = asked.event_id AND x.reservation_id = r.reservation_id) AS tickets
FROM (SELECT DISTINCT event_id, customer_key
      FROM unnest(CAST(:event_ids AS text[]), CAST(:customer_keys AS text[])) AS a (event_id, customer_key)) AS asked
CROSS JOIN LATERAL (
    SELECT r.reservation_id, r.status
    FROM inventory.reservation r
    WHERE r.event_id = asked.event_id AND r.customer_key = asked.customer_key AND r.status IN ('paying', 'confirmed')
    OFFSET 0
) AS r
