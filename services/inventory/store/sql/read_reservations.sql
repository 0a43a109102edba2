-- Reservations with their places, each place a JSON array, in the order of the layout. `OFFSET 0` looks up each by its key,
-- also before the tables have statistics.
SELECT r.event_id, r.reservation_id, r.holder, r.status, r.lane, r.join_seq, r.total_minor, r.currency,
       r.reserved_until_ms, (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = r.event_id) AS grace_s,
       r.order_reference, r.fingerprint, r.extended, r.payment_extended, r.version, r.released_tickets,
       CAST((SELECT json_agg(json_build_array(x.section_id, x.position, concat_ws('-', x.section_id, s.row, coalesce(s.label, CAST(s.number AS text))),
                                              x.unit_price_minor, x.type_id) ORDER BY x.section_id, x.position)
             FROM inventory.reservation_seat x JOIN inventory.seat s USING (event_id, section_id, position)
             WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS text) AS seats,
       CAST((SELECT json_agg(json_build_array(x.section_id, x.quantity, x.unit_price_minor, x.type_id)
                                ORDER BY x.section_id, x.type_id)
             FROM inventory.reservation_ga x
             WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id) AS text) AS ga
FROM inventory.reservation r
JOIN (SELECT event_id, reservation_id FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[]))
      AS a (event_id, reservation_id) OFFSET 0) AS requested USING (event_id, reservation_id)
