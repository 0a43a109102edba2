-- Commands, the newest order first and of each its newest command, beyond the one at :place of :before. Orders are read in
-- the order of their index until the page is full; those without a command of the status are passed over by their journal.
SELECT c.command_id, c.reference, c.event_id, c.command_type, c.caused_by, c.payload, c.status, c.attempts, c.created_at,
    c.processed_at, c.error_message
FROM orders."order" o
CROSS JOIN LATERAL (
    SELECT c.command_id::text, c.reference, c.event_id, c.command_type, c.caused_by, c.payload, c.status, c.attempts,
        c.created_at, c.processed_at, c.error_message, c.place
    FROM orders.checkout_command c WHERE c.reference = o.reference
) AS c
WHERE o.status <> 'tombstone'
    AND (CAST(:event_id AS text) IS NULL OR o.event_id = CAST(:event_id AS text))
    AND (CAST(:reference AS text) IS NULL OR o.reference = CAST(:reference AS text))
    AND (CAST(:status AS text) IS NULL OR (c.status = CAST(:status AS text)
        AND o.journal @> jsonb_build_array(jsonb_build_object('status', CAST(:status AS text)))))
    AND (CAST(:before AS text) IS NULL OR (o.created_at, o.reference) <= (
        SELECT a.created_at, a.reference FROM orders."order" a WHERE a.reference = CAST(:before AS text)))
    AND (CAST(:before AS text) IS NULL OR o.reference <> CAST(:before AS text) OR c.place < CAST(:place AS integer))
ORDER BY o.created_at DESC, o.reference DESC, c.place DESC
LIMIT :count_max
