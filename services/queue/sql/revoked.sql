-- Passes that still have life in them although their place has ended: what a gate must not honour.
SELECT a.jti, a.expires_at_ms
FROM queue.place p
JOIN queue.admission a USING (event_id, epoch, lane, join_seq)
WHERE p.event_id = :event_id AND p.epoch = :epoch AND p.ended_at IS NOT NULL
  AND a.jti IS NOT NULL AND a.expires_at_ms > :now_ms
ORDER BY a.expires_at_ms DESC
LIMIT :revoked_max
