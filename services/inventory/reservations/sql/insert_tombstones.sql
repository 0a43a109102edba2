-- Tombstones for holds that are in Redis but not here: a process that writes such a hold late fails on this row's key.
INSERT INTO inventory.reservation
    (event_id, reservation_id, holder, total_minor, currency, status, reserved_until_ms, fingerprint)
SELECT :event_id, reservation_id, '', 0, e.currency, 'expired', CAST(:now_ms AS bigint), ''
FROM unnest(CAST(:ids AS text[])) AS missing (reservation_id), inventory.event e
WHERE e.event_id = :event_id
ORDER BY reservation_id
ON CONFLICT DO NOTHING
RETURNING reservation_id, version
