-- What these keys were used for, each in its scope, and each looked up by itself (`OFFSET 0` keeps it so).
-- Hashes are hexadecimal: the driver asks the catalogue about other arrays than those of text, once a connection, and it
-- would be in the first second of a sale.
SELECT q.scope, i.key_hash, i.reference, i.fingerprint
FROM unnest(CAST(:scopes AS text[]), CAST(:key_hashes AS text[])) AS q(scope, key_hash)
CROSS JOIN LATERAL (
    SELECT i.key_hash, i.reference, i.fingerprint FROM orders.idempotency i
    WHERE i.scope = q.scope AND i.key_hash = decode(q.key_hash, 'hex')
    OFFSET 0
) AS i
