-- Finds the orders that idempotency keys created, each with its owner; `OFFSET 0` makes the planner look up each by itself.
-- Hashes are passed as hexadecimal text: for arrays of other types the driver queries the catalogue once a connection,
-- which would fall into the first second of a sale.
SELECT q.owner_id, o.key_hash, o.reference, o.fingerprint
FROM unnest(CAST(:owner_ids AS text[]), CAST(:key_hashes AS text[])) AS q(owner_id, key_hash)
CROSS JOIN LATERAL (
    SELECT o.key_hash, o.reference, o.fingerprint FROM orders."order" o
    WHERE o.owner_id = q.owner_id AND o.key_hash = decode(q.key_hash, 'hex')
    OFFSET 0
) AS o
