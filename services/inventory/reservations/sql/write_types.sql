-- Changes the price types of a hold that nobody has begun to pay: the counts of types (locked in key order after the
-- reservation, taken only from what is left), then its tickets, then what it costs. GA tickets are written anew. The caller
-- rolls all of it back unless one reservation and all the types were changed. Redis' epoch is read here, in a later statement
-- than the fence. The status is joined: as a constant it would allow the index of live holds, which without statistics looks as
-- good as the key and is read whole.
-- $1 event, $2 reservation, $3 its version, $4 new total, $5 ids and $6 numbers of the types (below zero: given back),
-- $7 sections, $8 positions, $9 prices and $10 types of the seats, $11 sections, $12 quantities, $13 prices and $14 types of GA
-- tickets, $15 the event for the outbox, $16 the time in ms
WITH changed AS MATERIALIZED (
    UPDATE inventory.reservation r SET total_minor = $4::bigint, version = r.version + 1
    FROM inventory.event e, unnest(ARRAY['pending_payment']) AS unpaid (status)
    WHERE e.event_id = $1 AND r.event_id = $1 AND r.reservation_id = $2 AND r.version = $3::bigint
      AND r.status = unpaid.status AND r.order_reference IS NULL
      AND r.reserved_until_ms + 1000 * e.grace_s >= $16::bigint
    RETURNING r.event_id, r.reservation_id
),
wanted AS MATERIALIZED (
    SELECT s.section_id, t.n FROM inventory.section s
    JOIN unnest($5::text[], $6::int[]) AS t (section_id, n) USING (section_id)
    WHERE s.event_id = $1 AND (SELECT count(*) FROM changed) = 1
    ORDER BY s.section_id FOR UPDATE OF s
),
types AS (
    UPDATE inventory.section s SET seats_remaining = s.seats_remaining - wanted.n, version = s.version + 1
    FROM wanted WHERE s.event_id = $1 AND s.section_id = wanted.section_id AND s.seats_remaining >= wanted.n
    RETURNING s.section_id
),
seats AS (
    UPDATE inventory.reservation_seat x SET unit_price_minor = t.price, type_id = t.type_id
    FROM unnest($7::text[], $8::int[], $9::bigint[], $10::text[]) AS t (section_id, position, price, type_id)
    WHERE (SELECT count(*) FROM changed) = 1 AND x.event_id = $1 AND x.reservation_id = $2
      AND x.section_id = t.section_id AND x.position = t.position
    RETURNING x.position
),
tickets AS (
    SELECT t.* FROM changed, unnest($11::text[], $12::int[], $13::bigint[], $14::text[])
        AS t (section_id, quantity, price, type_id)
),
gone AS (
    DELETE FROM inventory.reservation_ga g
    WHERE (SELECT count(*) FROM changed) = 1 AND g.event_id = $1 AND g.reservation_id = $2
      AND (g.section_id, g.type_id) NOT IN (SELECT section_id, type_id FROM tickets)
),
written AS (
    INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor, type_id)
    SELECT $1, $2, section_id, quantity, price, type_id FROM tickets
    ON CONFLICT (event_id, reservation_id, section_id, type_id)
    DO UPDATE SET quantity = excluded.quantity, unit_price_minor = excluded.unit_price_minor
),
events AS (
    INSERT INTO inventory.outbox_batch (events) SELECT jsonb_build_array($15::text::jsonb) FROM changed
)
SELECT (SELECT redis_epoch FROM inventory.event WHERE event_id = $1) AS redis_epoch,
       (SELECT count(*) FROM changed) AS reservations, (SELECT count(*) FROM types) AS types,
       (SELECT count(*) FROM seats) AS seats
