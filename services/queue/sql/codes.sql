-- The codes of these hashes, and how often each was used in this epoch.
-- $1 event_id, $2 epoch, $3 hashes
SELECT code_hash, lane, uses_max, CASE WHEN epoch = $2::int THEN uses ELSE 0 END AS uses
FROM queue.code
WHERE event_id = $1::text AND code_hash = ANY ($3::bytea[]) AND revoked_at IS NULL
ORDER BY code_hash
