-- What these keys were used for, each in its scope.
SELECT i.scope, i.key_hash, i.reference, i.fingerprint
FROM orders.idempotency i
JOIN unnest(CAST(:scopes AS text[]), CAST(:key_hashes AS bytea[])) AS q(scope, key_hash)
    ON i.scope = q.scope AND i.key_hash = q.key_hash
