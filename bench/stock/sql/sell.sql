WITH taken AS (
    SELECT section_id, position, row_number() OVER (ORDER BY section_id, position) AS n
    FROM inventory.seat WHERE event_id = $1::text ORDER BY section_id, position LIMIT $2::int + $3::int
), made AS (
    SELECT *, md5('bench' || n) AS reservation_id,
           CASE WHEN n <= $2 THEN 'confirmed' ELSE 'pending_payment' END AS status
    FROM taken
), reservations AS (
    INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, order_reference,
        reserved_until_ms, fingerprint, confirmed_at)
    SELECT $1, reservation_id, 'holder-' || n, 5000, 'EUR', status,
           CASE status WHEN 'confirmed' THEN 'order-' || n END, extract(epoch FROM now()) * 1000 + 3600000,
           'stock.body', CASE status WHEN 'confirmed' THEN now() END
    FROM made
), seats AS (
    INSERT INTO inventory.reservation_seat (event_id, reservation_id, section_id, position, unit_price_minor)
    SELECT $1, reservation_id, section_id, position, 5000 FROM made
), sections AS (
    UPDATE inventory.section s SET seats_remaining = seats_remaining - gone.n
    FROM (SELECT section_id, count(*) AS n FROM made GROUP BY section_id) AS gone
    WHERE s.event_id = $1 AND s.section_id = gone.section_id
)
UPDATE inventory.seat s
SET status = CASE made.status WHEN 'confirmed' THEN 'sold' ELSE 'held' END, reservation_id = made.reservation_id
FROM made WHERE s.event_id = $1 AND s.section_id = made.section_id AND s.position = made.position
