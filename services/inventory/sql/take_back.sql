-- What was sold is sold no longer: of these, those that were, with a line in the log for each section.
WITH mine AS MATERIALIZED (
    UPDATE inventory.reservation r SET status = 'returned', version = r.version + 1
    WHERE r.event_id = :event_id AND r.reservation_id = ANY(CAST(:ids AS text[])) AND r.status = 'confirmed'
    RETURNING r.reservation_id
),
logged AS (
    INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, how, late_ms)
    SELECT :event_id, l.reservation_id, l.section_id, l.positions, l.ga_quantity, 'returned', 0
    FROM (
        SELECT reservation_id, section_id, array_agg(position ORDER BY position) AS positions, 0 AS ga_quantity
        FROM inventory.reservation_seat WHERE event_id = :event_id AND reservation_id = ANY(CAST(:ids AS text[]))
        GROUP BY reservation_id, section_id
        UNION ALL
        SELECT reservation_id, section_id, CAST('{}' AS int[]), quantity
        FROM inventory.reservation_ga WHERE event_id = :event_id AND reservation_id = ANY(CAST(:ids AS text[]))
    ) AS l JOIN mine USING (reservation_id)
)
SELECT reservation_id FROM mine
