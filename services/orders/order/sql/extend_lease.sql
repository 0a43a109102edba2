-- Extends the leases of a live worker. Orders are locked in key order, like in every statement that locks several.
WITH held AS MATERIALIZED (
    SELECT o.reference FROM orders."order" o
    JOIN unnest(CAST(:references AS text[]), CAST(:owners AS text[])) AS l (reference, owner)
        ON o.reference = l.reference AND o.lease = l.owner
    ORDER BY o.reference FOR UPDATE OF o
)
UPDATE orders."order" o SET lease_until = now() + make_interval(secs => :lease_s)
FROM held WHERE o.reference = held.reference
