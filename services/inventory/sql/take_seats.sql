-- Takes seats that are available, locked in key order first, and notes them under their reservation.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[]), CAST(:ids AS text[]),
                         CAST(:prices AS bigint[])) AS a (section_id, position, reservation_id, price)
),
locked AS MATERIALIZED (
    SELECT s.section_id, s.position, asked.reservation_id, asked.price
    FROM inventory.seat s
    JOIN asked USING (section_id, position)
    WHERE s.event_id = :event_id
    ORDER BY s.section_id, s.position
    FOR UPDATE OF s
),
taken AS (
    UPDATE inventory.seat s
    SET status = :mark, reservation_id = locked.reservation_id
    FROM locked
    WHERE s.event_id = :event_id AND s.section_id = locked.section_id AND s.position = locked.position
      AND s.status = 'available'
    RETURNING s.section_id, s.position, locked.reservation_id, locked.price
)
INSERT INTO inventory.reservation_seat (event_id, reservation_id, section_id, position, unit_price_minor)
SELECT :event_id, reservation_id, section_id, position, price FROM taken
ORDER BY reservation_id, section_id, position
