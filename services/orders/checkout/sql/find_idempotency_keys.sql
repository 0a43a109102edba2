-- Finds what idempotency keys were used for, each in its scope; `OFFSET 0` makes the planner look up each by itself.
-- Hashes are passed as hexadecimal text: for arrays of other types the driver queries the catalogue once a connection,
-- which would fall into the first second of a sale.
SELECT q.scope, i.key_hash, i.reference, i.fingerprint
FROM unnest(CAST(:scopes AS text[]), CAST(:key_hashes AS text[])) AS q(scope, key_hash)
CROSS JOIN LATERAL (
    SELECT i.key_hash, i.reference, i.fingerprint FROM orders.idempotency i
    WHERE i.scope = q.scope AND i.key_hash = decode(q.key_hash, 'hex')
    OFFSET 0
) AS i
