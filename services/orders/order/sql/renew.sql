-- A worker that is alive keeps its leases. Locked in key order, as every statement over many orders does.
WITH mine AS MATERIALIZED (
    SELECT o.reference FROM orders."order" o
    JOIN unnest(CAST(:references AS text[]), CAST(:owners AS text[])) AS l (reference, owner)
        ON o.reference = l.reference AND o.lease = l.owner
    ORDER BY o.reference FOR UPDATE OF o
)
UPDATE orders."order" o SET lease_until = now() + make_interval(secs => :lease_s)
FROM mine WHERE o.reference = mine.reference
