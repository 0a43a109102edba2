-- These reservations with their places, what of them has another price type than the usual one, and the id of that, null of an
-- event without types. $1 reservation ids
SELECT r.event_id, r.reservation_id, r.holder, r.status, r.total_minor, r.currency, r.reserved_until_ms,
    r.order_reference, CAST(extract(epoch FROM r.ended_at) * 1000 AS bigint) AS ended_ms,
    (SELECT e.price_types -> 0 ->> 'type_id' FROM inventory.event e WHERE e.event_id = r.event_id) AS usual,
    seated.seats, floor.ga, seated.typed || floor.typed AS typed
FROM inventory.reservation r
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(place.name), '{}') AS seats,
        coalesce(jsonb_agg(jsonb_build_array(place.name, place.type_id, 1)) FILTER (WHERE place.type_id <> ''), '[]') AS typed
    FROM (SELECT concat_ws('-', s.section_id, s.row, coalesce(s.label, s.number::text)) AS name, x.type_id
          FROM inventory.reservation_seat x JOIN inventory.seat s USING (event_id, section_id, position)
          WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS place
) AS seated
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(section.section_id, section.quantity), '{}') AS ga,
        coalesce((
            SELECT jsonb_agg(jsonb_build_array(g.section_id, g.type_id, g.quantity)) FROM inventory.reservation_ga g
            WHERE g.event_id = r.event_id AND g.reservation_id = r.reservation_id AND g.type_id <> ''), '[]') AS typed
    FROM (SELECT g.section_id, sum(g.quantity) AS quantity FROM inventory.reservation_ga g
          WHERE g.event_id = r.event_id AND g.reservation_id = r.reservation_id GROUP BY g.section_id) AS section
) AS floor
WHERE r.reservation_id = ANY($1::text[])
