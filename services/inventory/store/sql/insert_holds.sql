-- Inserts a batch of holds in one statement: reservations in the order of their key (an existing one or a tombstone is
-- skipped), then sections and price types, then seats, each locked in key order and taken only from what is left, and the outbox event. Each
-- step waits for the one before by counting its rows. The caller rolls all of it back unless every count is as expected.
-- Redis' epoch is read here, in a later statement than the fence.
WITH inserted AS (
    INSERT INTO inventory.reservation
        (event_id, reservation_id, holder, email, lane, join_seq, total_minor, currency, status,
         reserved_until_ms, fingerprint, hold_ttl_s, variant, reminders_requested)
    SELECT $1, reservation_id, holder, email, lane, join_seq, total_minor, $2, 'pending_payment',
           until_ms, fingerprint, hold_ttl_s, variant, reminders
    FROM unnest($3::text[], $4::text[], $5::text[], $6::int[], $7::bigint[], $8::bigint[], $9::bigint[],
                $10::text[], $11::int[], $12::text[], $13::bool[])
        AS requested (reservation_id, holder, email, lane, join_seq, total_minor, until_ms, fingerprint,
                  hold_ttl_s, variant, reminders)
    ORDER BY reservation_id
    ON CONFLICT DO NOTHING
    RETURNING reservation_id
),
tickets AS (
    INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor, type_id)
    SELECT $1, reservation_id, section_id, quantity, price, type_id
    FROM unnest($14::text[], $15::text[], $16::int[], $17::bigint[], $18::text[])
        AS requested (reservation_id, section_id, quantity, price, type_id)
    JOIN inserted USING (reservation_id)
    ORDER BY reservation_id, section_id, type_id
),
wanted_sections AS MATERIALIZED (
    SELECT s.section_id, requested.quantity
    FROM inventory.section s
    JOIN unnest($19::text[], $20::int[]) AS requested (section_id, quantity) USING (section_id)
    WHERE s.event_id = $1 AND (SELECT count(*) FROM inserted) >= 0
    ORDER BY s.section_id
    FOR UPDATE OF s
),
sections AS (
    UPDATE inventory.section s
    SET seats_remaining = s.seats_remaining - wanted.quantity, version = s.version + 1
    FROM wanted_sections wanted
    WHERE s.event_id = $1 AND s.section_id = wanted.section_id AND s.seats_remaining >= wanted.quantity
    RETURNING s.section_id
),
wanted_seats AS MATERIALIZED (
    SELECT s.event_id, s.section_id, s.position, requested.reservation_id, requested.price, requested.type_id,
           requested.allotment_id
    FROM inventory.seat s
    JOIN (SELECT $1 AS event_id, a.*
          FROM unnest($21::text[], $22::int[], $23::text[], $24::bigint[], $25::text[], $26::text[])
              AS a (section_id, position, reservation_id, price, type_id, allotment_id)
          OFFSET 0) AS requested USING (event_id, section_id, position)
    WHERE (SELECT count(*) FROM sections) >= 0
    ORDER BY s.section_id, s.position
    FOR UPDATE OF s
),
seats AS (
    UPDATE inventory.seat s
    SET status = 'held', reservation_id = wanted.reservation_id
    FROM wanted_seats wanted
    WHERE s.event_id = wanted.event_id AND s.section_id = wanted.section_id AND s.position = wanted.position
      AND s.status = 'available' AND coalesce(s.allotment_id, '') = wanted.allotment_id
    RETURNING s.section_id, s.position, wanted.reservation_id, wanted.price, wanted.type_id
),
reserved_seats AS (
    INSERT INTO inventory.reservation_seat (event_id, reservation_id, section_id, position, unit_price_minor, type_id)
    SELECT $1, reservation_id, section_id, position, price, type_id FROM seats
    ORDER BY reservation_id, section_id, position
),
events AS (
    INSERT INTO inventory.outbox_batch (events) SELECT jsonb_build_array($27::text::jsonb)
)
SELECT (SELECT redis_epoch FROM inventory.event WHERE event_id = $1) AS redis_epoch,
       (SELECT count(*) FROM inserted) AS reservations,
       (SELECT count(*) FROM sections) AS sections,
       (SELECT count(*) FROM seats) AS seats
