-- Records who used which code for which place, and counts the uses. The caller has locked the codes.
-- $1 event_id, $2 epoch, $3 lane, $4 hashes, $5 holders, $6 numbers, $7 whether it costs a use
WITH used AS (
    SELECT * FROM unnest($4::bytea[], $5::text[], $6::bigint[], $7::boolean[]) AS n (code_hash, holder, join_seq, costs)
), recorded AS (
    INSERT INTO queue.access_code_use (event_id, epoch, code_hash, holder, lane, join_seq)
    SELECT $1::text, $2::int, code_hash, holder, $3::smallint, join_seq FROM used
    ON CONFLICT (event_id, epoch, code_hash, holder) DO UPDATE SET lane = excluded.lane, join_seq = excluded.join_seq
)
UPDATE queue.access_code c
SET uses = CASE WHEN c.epoch = $2 THEN c.uses ELSE 0 END + redeemed.n, epoch = $2
FROM (SELECT $1 AS event_id, code_hash, count(*) AS n FROM used WHERE costs GROUP BY code_hash OFFSET 0) AS redeemed
WHERE c.event_id = redeemed.event_id AND c.code_hash = redeemed.code_hash
