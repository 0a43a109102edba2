-- These reservations with their places, and why places of them were released. $1 reservation ids
SELECT r.event_id, r.reservation_id, r.holder, r.status, r.total_minor, r.currency, r.reserved_until_ms,
    r.order_reference, CAST(extract(epoch FROM r.ended_at) * 1000 AS bigint) AS ended_ms,
    array(SELECT concat_ws('-', s.section_id, s.row, coalesce(s.label, s.number::text))
          FROM inventory.reservation_seat x JOIN inventory.seat s USING (event_id, section_id, position)
          WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS seats,
    coalesce((SELECT jsonb_object_agg(g.section_id, g.quantity) FROM (
                  SELECT split_part(x.section_id, '~', 1) AS section_id, sum(x.quantity) AS quantity
                  FROM inventory.reservation_ga x
                  WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id GROUP BY 1) AS g),
             '{}') AS ga
FROM inventory.reservation r WHERE r.reservation_id = ANY($1::text[])
