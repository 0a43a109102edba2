-- The ledger against itself, in one snapshot: what sections and seats say, against the live reservations.
-- Of two owners of a seat it belongs to whoever bought it first, then to whoever pays for it, then to the older hold.
WITH live AS MATERIALIZED (
    SELECT reservation_id, status, confirmed_at, created_at FROM inventory.reservation
    WHERE event_id = :event_id AND status IN ('pending_payment', 'paying', 'confirmed')
),
owned AS MATERIALIZED (
    SELECT x.section_id, x.position, l.reservation_id, l.status,
           row_number() OVER w AS turn,
           count(*) FILTER (WHERE l.status = 'confirmed') OVER (PARTITION BY x.section_id, x.position) AS buyers
    FROM inventory.reservation_seat x JOIN live l USING (reservation_id)
    WHERE x.event_id = :event_id
    WINDOW w AS (PARTITION BY x.section_id, x.position ORDER BY l.status <> 'confirmed', l.confirmed_at,
                 l.status <> 'paying', l.created_at, l.reservation_id)
),
tickets AS (
    SELECT g.section_id, sum(g.quantity) AS live, coalesce(sum(g.quantity) FILTER (WHERE l.status = 'confirmed'), 0) AS sold
    FROM inventory.reservation_ga g JOIN live l USING (reservation_id) WHERE g.event_id = :event_id GROUP BY g.section_id
),
seats AS (
    SELECT section_id, count(*) FILTER (WHERE status = 'available') AS available,
           count(*) FILTER (WHERE status = 'blocked') AS blocked
    FROM inventory.seat WHERE event_id = :event_id GROUP BY section_id
),
sections AS (
    SELECT s.section_id, s.kind, s.seats_remaining, s.blocked, s.capacity + s.honoured AS capacity, s.honoured,
           coalesce(t.live, 0) AS live, coalesce(t.sold, 0) AS sold, seats.available, seats.blocked AS seats_blocked
    FROM inventory.section s LEFT JOIN tickets t USING (section_id) LEFT JOIN seats USING (section_id)
    WHERE s.event_id = :event_id
),
left_over AS (
    SELECT section_id, seats_remaining,
           CASE kind WHEN 'seated' THEN available ELSE greatest(0, capacity - honoured - blocked - live) END AS really_left
    FROM sections
)
SELECT 'remaining' AS kind, section_id, -1 AS position, CAST(seats_remaining AS text) AS seen,
       CAST(really_left AS text) AS should_be, seats_remaining - really_left AS apart
FROM left_over WHERE seats_remaining <> really_left
UNION ALL
SELECT 'blocked', section_id, -1, CAST(blocked AS text), CAST(seats_blocked AS text), blocked - seats_blocked
FROM sections WHERE kind = 'seated' AND blocked <> seats_blocked
UNION ALL
SELECT 'seat', s.section_id, s.position, concat_ws(':', s.status, s.reservation_id),
       concat_ws(':', CASE WHEN o.status IS NULL THEN 'available' WHEN o.status = 'confirmed' THEN 'sold' ELSE 'held' END,
                 o.reservation_id), 1
FROM inventory.seat s
LEFT JOIN owned o ON o.section_id = s.section_id AND o.position = s.position AND o.turn = 1
WHERE s.event_id = :event_id AND (
    (o.reservation_id IS NULL AND s.status IN ('held', 'sold'))
    OR (o.reservation_id IS NOT NULL AND (s.reservation_id IS DISTINCT FROM o.reservation_id
        OR s.status <> CASE o.status WHEN 'confirmed' THEN 'sold' ELSE 'held' END)))
UNION ALL
SELECT 'oversold', section_id, -1, CAST(sold AS text), CAST(capacity - blocked AS text), sold + blocked - capacity
FROM sections WHERE kind = 'ga' AND sold > 0 AND sold + blocked > capacity
UNION ALL
SELECT 'sold-twice', section_id, position, CAST(buyers AS text), '1', buyers - 1
FROM owned WHERE turn = 1 AND buyers > 1
ORDER BY 1, 2, 3
