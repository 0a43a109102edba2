-- Writes revoked passes, in the order of their key.
INSERT INTO inventory.revoked_pass (event_id, jti, expires_at_ms)
SELECT :event_id, p.jti, p.expires_at_ms
FROM unnest(CAST(:jtis AS text[]), CAST(:expire_at_ms AS bigint[])) AS p (jti, expires_at_ms)
ORDER BY p.jti
ON CONFLICT DO NOTHING
