-- Which of these holders have used their code in this epoch and have not bought with it: they need no second use.
-- $1 event_id, $2 epoch, $3 hashes, $4 holders
SELECT n.holder
FROM (SELECT $1::text AS event_id, $2::int AS epoch, n.*
      FROM unnest($3::bytea[], $4::text[]) AS n (code_hash, holder) OFFSET 0) AS n
JOIN queue.access_code_use u USING (event_id, epoch, code_hash, holder)
LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE p.end_reason IS DISTINCT FROM 'completed'
