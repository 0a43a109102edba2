-- New reservations, in the order of their key; one that is there already (or a tombstone) is left out and counted.
INSERT INTO inventory.reservation
    (event_id, reservation_id, holder, user_id, email, lane, join_seq, total_minor, currency, status,
     reserved_until_ms, fingerprint)
SELECT :event_id, reservation_id, holder, user_id, email, lane, join_seq, total_minor, :currency, 'pending_payment',
       until_ms, fingerprint
FROM unnest(CAST(:ids AS text[]), CAST(:holders AS text[]), CAST(:user_ids AS text[]), CAST(:emails AS text[]),
            CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[]), CAST(:totals AS bigint[]), CAST(:untils AS bigint[]),
            CAST(:fingerprints AS text[]))
    AS asked (reservation_id, holder, user_id, email, lane, join_seq, total_minor, until_ms, fingerprint)
ORDER BY reservation_id
ON CONFLICT DO NOTHING
