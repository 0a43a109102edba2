-- Which of these holders used their code before in this epoch and have not bought with it: they need no second use.
-- $1 event_id, $2 epoch, $3 hashes, $4 holders
SELECT u.holder
FROM unnest($3::bytea[], $4::text[]) AS n (code_hash, holder)
JOIN queue.code_use u ON u.event_id = $1::text AND u.epoch = $2::int AND u.code_hash = n.code_hash
                     AND u.holder = n.holder
LEFT JOIN queue.place p ON p.event_id = u.event_id AND p.epoch = u.epoch AND p.lane = u.lane
                       AND p.join_seq = u.join_seq
WHERE p.how IS DISTINCT FROM 'completed'
