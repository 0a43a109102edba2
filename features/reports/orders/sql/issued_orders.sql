-- The orders of an event whose tickets are issued, in the order of their creation, after the last one of the page before.
SELECT o.reference, o.fulfilled_at, o.lines FROM orders."order" o
WHERE o.event_id = :event_id AND o.fulfilled_at IS NOT NULL
    AND (CAST(:reference AS text) IS NULL OR (o.created_at, o.reference) > (
        SELECT a.created_at, a.reference FROM orders."order" a WHERE a.reference = CAST(:reference AS text)))
ORDER BY o.created_at, o.reference
LIMIT :count_max
