-- Recounts sections under their locks, where the row still has the version that was read.
WITH counted AS (
    SELECT s.section_id, s.seats_remaining AS was, requested.seen_version,
           CASE s.kind WHEN 'seated' THEN
               (SELECT count(*) FROM inventory.seat x
                WHERE x.event_id = s.event_id AND x.section_id = s.section_id AND x.status = 'blocked')
           ELSE s.blocked END AS blocked,
           CASE s.kind WHEN 'seated' THEN
               (SELECT count(*) FROM inventory.seat x
                WHERE x.event_id = s.event_id AND x.section_id = s.section_id AND x.status = 'available')
           ELSE greatest(0, s.capacity - s.blocked - tickets.live) END AS remaining,
           least(s.overbooked_accepted, greatest(0, tickets.live + s.blocked - s.capacity)) AS overbooked_accepted
    FROM inventory.section s
    JOIN unnest(CAST(:section_ids AS text[]), CAST(:versions AS bigint[])) AS requested (section_id, seen_version)
        USING (section_id)
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(g.quantity), 0) AS live FROM (
            SELECT event_id, reservation_id, quantity FROM inventory.reservation_ga
            WHERE event_id = s.event_id AND section_id = s.section_id
            UNION ALL SELECT event_id, reservation_id, quantity FROM inventory.reservation_ga
            WHERE event_id = s.event_id AND s.kind = 'type' AND type_id = substr(s.section_id, 2)
            UNION ALL SELECT event_id, reservation_id, 1 FROM inventory.reservation_seat
            WHERE event_id = s.event_id AND s.kind = 'type' AND type_id = substr(s.section_id, 2)
        ) AS g JOIN inventory.reservation r USING (event_id, reservation_id)
        WHERE r.status IN ('pending_payment', 'paying', 'confirmed')
    ) AS tickets
    WHERE s.event_id = :event_id
)
UPDATE inventory.section s
SET seats_remaining = CAST(counted.remaining AS int), blocked = CAST(counted.blocked AS int),
    overbooked_accepted = CAST(counted.overbooked_accepted AS int), version = s.version + 1
FROM counted
WHERE s.event_id = :event_id AND s.section_id = counted.section_id AND s.version = counted.seen_version
  AND (s.seats_remaining, s.blocked, s.overbooked_accepted) <> (counted.remaining, counted.blocked, counted.overbooked_accepted)
RETURNING s.section_id, s.seats_remaining - counted.was AS more
