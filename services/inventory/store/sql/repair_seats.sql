-- Sets seats to the owner that the live reservations name, else to `status_if_free`; the caller has locked them. The
-- arrays are compared once more, as a planner without statistics would join all reservations with all these seats.
WITH mine AS MATERIALIZED (
    SELECT s.section_id, s.position FROM inventory.seat s
    JOIN unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS requested (section_id, position)
        USING (section_id, position)
    WHERE s.event_id = :event_id
),
owner AS (
    SELECT DISTINCT ON (x.section_id, x.position) x.section_id, x.position, r.reservation_id,
           CASE r.status WHEN 'confirmed' THEN 'sold' ELSE 'held' END AS status
    FROM mine JOIN inventory.reservation_seat x USING (section_id, position)
    JOIN inventory.reservation r ON r.event_id = :event_id AND r.reservation_id = x.reservation_id
    WHERE x.event_id = :event_id AND x.section_id = ANY(CAST(:section_ids AS text[]))
        AND x.position = ANY(CAST(:positions AS int[])) AND r.status IN ('pending_payment', 'paying', 'confirmed')
    ORDER BY x.section_id, x.position, r.status <> 'confirmed', r.confirmed_at, r.status <> 'paying', r.created_at,
             r.reservation_id
)
UPDATE inventory.seat s
SET status = coalesce(owner.status, CAST(:status_if_free AS text)), reservation_id = owner.reservation_id
FROM mine LEFT JOIN owner USING (section_id, position)
WHERE s.event_id = :event_id AND s.section_id = mine.section_id AND s.position = mine.position
  AND (s.reservation_id IS DISTINCT FROM owner.reservation_id OR (owner.status IS NOT NULL AND s.status <> owner.status))
RETURNING s.section_id, s.position, s.status
