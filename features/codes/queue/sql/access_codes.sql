-- The valid codes with these hashes, and how often each was used in this epoch.
-- $1 event_id, $2 epoch, $3 hashes
SELECT code_hash, lane, uses_max, CASE WHEN epoch = $2::int THEN uses ELSE 0 END AS uses
FROM queue.access_code
JOIN (SELECT $1::text AS event_id, code_hash FROM unnest($3::bytea[]) AS n (code_hash) OFFSET 0) AS wanted
    USING (event_id, code_hash)
WHERE revoked_at IS NULL
ORDER BY code_hash
