-- Leaves open orders of this process to whoever takes them next; all of them if none is named.
UPDATE orders.open_order p SET owner = '', epoch = p.epoch + 1
FROM (SELECT g.reference FROM orders.open_order g
      WHERE g.owner = :owner AND (:all OR g.reference = ANY(CAST(:references AS text[])))
      ORDER BY g.reference FOR UPDATE) AS g
WHERE p.reference = g.reference
