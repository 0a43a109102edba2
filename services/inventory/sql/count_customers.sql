-- What these customers pay for or bought, over all their holders. Read after the lock, in a statement of its own.
SELECT r.event_id, r.customer_key, r.reservation_id, r.status,
       (SELECT count(*) FROM inventory.reservation_seat x
        WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id)
       + (SELECT coalesce(sum(x.quantity), 0) FROM inventory.reservation_ga x
          WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS tickets
FROM inventory.reservation r
JOIN (SELECT DISTINCT event_id, customer_key
      FROM unnest(CAST(:event_ids AS text[]), CAST(:customer_keys AS text[])) AS a (event_id, customer_key)) AS asked
    USING (event_id, customer_key)
WHERE r.status IN ('paying', 'confirmed')
