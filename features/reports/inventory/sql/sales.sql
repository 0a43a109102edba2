-- One page of sold places, after the last one that was read; GA tickets have position -1, and a row for each price type of a
-- section. Each reservation has at least one row, so as many reservations as rows are enough for a page.
WITH page AS MATERIALIZED (
    SELECT event_id, reservation_id, order_reference, confirmed_at, currency, holder, email
    FROM inventory.reservation
    WHERE (event_id, reservation_id) >= (:event_id, :reservation_id) AND event_id <= :event_id AND status = 'confirmed'
    ORDER BY event_id, reservation_id
    LIMIT 1 + :count_max
),
line AS (
    SELECT p.*, x.section_id, x.position, 1 AS quantity, x.unit_price_minor, x.type_id
    FROM page p JOIN inventory.reservation_seat x USING (event_id, reservation_id)
    UNION ALL
    SELECT p.*, g.section_id, -1, g.quantity, g.unit_price_minor, g.type_id
    FROM page p JOIN inventory.reservation_ga g USING (event_id, reservation_id)
)
SELECT reservation_id, order_reference, confirmed_at, currency, holder, email, section_id, position, quantity,
       unit_price_minor, type_id
FROM line
WHERE (reservation_id, section_id, position, type_id) > (:reservation_id, :section_id, CAST(:position AS int), :type_id)
ORDER BY reservation_id, section_id, position, type_id
LIMIT :count_max
