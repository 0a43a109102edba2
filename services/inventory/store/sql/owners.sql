-- Seats with those of the given reservations that own them, the rightful owner first: the first buyer, then the one who is
-- paying, then the older hold. A seat that none of them owns has one row, without an owner.
WITH requested AS MATERIALIZED (
    SELECT CAST(:event_id AS text) AS event_id, a.*
    FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[]), CAST(:ids AS text[]))
        AS a (section_id, position, reservation_id)
),
claims AS MATERIALIZED (
    SELECT event_id, section_id, position, r.reservation_id, r.status, r.confirmed_at, r.created_at
    FROM requested JOIN inventory.reservation_seat x USING (event_id, reservation_id, section_id, position)
    JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE r.status IN ('pending_payment', 'paying', 'confirmed')
    UNION ALL
    SELECT DISTINCT event_id, section_id, position, CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS timestamptz),
           CAST(NULL AS timestamptz)
    FROM requested
)
SELECT s.section_id, s.position, s.status, s.reservation_id, c.reservation_id AS owner, c.status AS owner_status
FROM claims c JOIN inventory.seat s USING (event_id, section_id, position)
ORDER BY s.section_id, s.position, c.status IS NULL, c.status <> 'confirmed', c.confirmed_at, c.status <> 'paying',
         c.created_at, c.reservation_id
