-- Marks sold reservations as returned, with a release log row per section.
WITH mine AS MATERIALIZED (
    UPDATE inventory.reservation r SET status = 'returned', version = r.version + 1
    FROM (SELECT CAST(:event_id AS text) AS event_id, a.* FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
          OFFSET 0) AS requested
    WHERE r.event_id = requested.event_id AND r.reservation_id = requested.reservation_id AND r.status = 'confirmed'
    RETURNING r.event_id, r.reservation_id
),
logged AS (
    INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
    SELECT event_id, reservation_id, section_id, array_agg(position ORDER BY position), 0, 'returned', 0
    FROM inventory.reservation_seat JOIN mine USING (event_id, reservation_id)
    GROUP BY event_id, reservation_id, section_id
    UNION ALL
    SELECT event_id, reservation_id, section_id, CAST('{}' AS int[]), quantity, 'returned', 0
    FROM inventory.reservation_ga JOIN mine USING (event_id, reservation_id)
)
SELECT reservation_id FROM mine
