-- Sells reservations to the orders that pay for them: locks them in the order of their key, confirms those that their owner
-- may, marks their held seats as sold (locked in key order after the reservations, as by every writer), and writes one event
-- for each event. Answers all of them. No two steps may concern the same reservation. A reservation that changed while it was
-- waited for is locked now but not sold, because this statement's snapshot may have other places of it: the caller takes the
-- step again. Each reservation and its places are looked up by themselves (`OFFSET 0` keeps it so), and parts are grouped,
-- never joined, because that would compare each with each.
-- $1 event ids, $2 ids, $3 order references, $4 event ids and $5 bodies of the events, whose reservations are filled in here
WITH locked AS MATERIALIZED (
    SELECT r.event_id, r.reservation_id, r.holder, r.status, r.lane, r.join_seq, r.total_minor, r.currency,
           r.reserved_until_ms, r.order_reference, r.fingerprint, r.extended, r.payment_extended, r.version,
           r.released_tickets, step.asking
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS s (event_id, reservation_id, asking)
          ORDER BY reservation_id) AS step
    CROSS JOIN LATERAL (
        SELECT * FROM inventory.reservation r
        WHERE r.event_id = step.event_id AND r.reservation_id = step.reservation_id FOR UPDATE
    ) AS r
),
sold AS (
    UPDATE inventory.reservation r
    SET status = 'confirmed', confirmed_at = clock_timestamp(), version = r.version + 1
    FROM locked l
    WHERE r.event_id = l.event_id AND r.reservation_id = l.reservation_id AND r.version = l.version
      AND l.status = 'paying' AND l.order_reference = l.asking
    RETURNING r.event_id, r.reservation_id, r.order_reference, r.total_minor, r.version
),
seats AS MATERIALIZED (
    SELECT s.event_id, s.section_id, s.position, s.status, s.reservation_id AS owner, mine.reservation_id,
           concat_ws('-', s.section_id, s.row, coalesce(s.label, CAST(s.number AS text))) AS seat_id
    FROM (
        SELECT sold.event_id, sold.reservation_id, x.section_id, x.position FROM sold CROSS JOIN LATERAL (
            SELECT section_id, position FROM inventory.reservation_seat x
            WHERE x.event_id = sold.event_id AND x.reservation_id = sold.reservation_id OFFSET 0
        ) AS x
    ) AS mine
    JOIN inventory.seat s USING (event_id, section_id, position)
    ORDER BY s.event_id, s.section_id, s.position
    FOR UPDATE OF s
),
marked AS (
    UPDATE inventory.seat s SET status = 'sold' FROM seats
    WHERE s.event_id = seats.event_id AND s.section_id = seats.section_id AND s.position = seats.position
      AND seats.status = 'held' AND seats.owner = seats.reservation_id
),
tickets AS MATERIALIZED (
    SELECT sold.event_id, sold.reservation_id, x.section_id, x.quantity FROM sold CROSS JOIN LATERAL (
        SELECT section_id, quantity FROM inventory.reservation_ga x
        WHERE x.event_id = sold.event_id AND x.reservation_id = sold.reservation_id OFFSET 0
    ) AS x
),
shown AS (
    SELECT event_id, jsonb_build_object(
        'reservation_id', reservation_id, 'version', max(version), 'status', 'confirmed',
        'order_reference', max(order_reference), 'total_minor', max(total_minor),
        'seats', coalesce(jsonb_agg(seat_id ORDER BY section_id, position) FILTER (WHERE seat_id IS NOT NULL), '[]'),
        'ga', coalesce(jsonb_agg(jsonb_build_object('section_id', section_id, 'quantity', quantity) ORDER BY section_id)
                       FILTER (WHERE quantity IS NOT NULL), '[]')) AS reservation
    FROM (
        SELECT event_id, reservation_id, order_reference, total_minor, version,
               NULL AS section_id, NULL::int AS position, NULL AS seat_id, NULL::int AS quantity FROM sold
        UNION ALL SELECT event_id, reservation_id, NULL, NULL, NULL, section_id, position, seat_id, NULL FROM seats
        UNION ALL SELECT event_id, reservation_id, NULL, NULL, NULL, section_id, NULL, NULL, quantity FROM tickets
    ) AS parts
    GROUP BY event_id, reservation_id
),
events AS (
    INSERT INTO inventory.outbox_batch (events)
    SELECT jsonb_agg(jsonb_set(CAST(body AS jsonb), '{after,reservations}', reservations))
    FROM (SELECT event_id, jsonb_agg(reservation) AS reservations FROM shown GROUP BY event_id) AS confirmed
    JOIN unnest($4::text[], $5::text[]) AS bodies (event_id, body) USING (event_id)
    HAVING count(*) > 0
)
SELECT l.event_id, l.reservation_id, l.holder, l.status, l.lane, l.join_seq, l.total_minor, l.currency, l.reserved_until_ms,
       (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = l.event_id) AS grace_s,
       l.order_reference, l.fingerprint, l.extended, l.payment_extended, l.version, l.released_tickets,
       l.reservation_id IN (SELECT sold.reservation_id FROM sold) AS is_sold
FROM locked l
