-- New reservations, in the order of their key, with their GA tickets and the facts to tell; one that is there already (or
-- a tombstone) is left out. The caller rolls all of it back unless both answers are what it expects: which gate is the
-- valid one, and how many reservations are new.
WITH inserted AS (
    INSERT INTO inventory.reservation
        (event_id, reservation_id, holder, user_id, email, lane, join_seq, total_minor, currency, status,
         reserved_until_ms, fingerprint)
    SELECT :event_id, reservation_id, holder, user_id, email, lane, join_seq, total_minor, :currency, 'pending_payment',
           until_ms, fingerprint
    FROM unnest(CAST(:ids AS text[]), CAST(:holders AS text[]), CAST(:user_ids AS text[]), CAST(:emails AS text[]),
                CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[]), CAST(:totals AS bigint[]),
                CAST(:untils AS bigint[]), CAST(:fingerprints AS text[]))
        AS asked (reservation_id, holder, user_id, email, lane, join_seq, total_minor, until_ms, fingerprint)
    ORDER BY reservation_id
    ON CONFLICT DO NOTHING
    RETURNING reservation_id
),
tickets AS (
    INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor)
    SELECT :event_id, reservation_id, section_id, quantity, price
    FROM unnest(CAST(:ga_ids AS text[]), CAST(:ga_sections AS text[]), CAST(:ga_quantities AS int[]),
                CAST(:ga_prices AS bigint[])) AS asked (reservation_id, section_id, quantity, price)
    JOIN inserted USING (reservation_id)
    ORDER BY reservation_id, section_id
),
told AS (
    INSERT INTO inventory.outbox (event_id, body)
    SELECT :event_id, CAST(body AS jsonb) FROM unnest(CAST(:bodies AS text[])) AS b (body)
)
SELECT (SELECT gate_epoch FROM inventory.event WHERE event_id = :event_id) AS gate_epoch,
       (SELECT count(*) FROM inserted) AS written
