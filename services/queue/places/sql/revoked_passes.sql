-- Passes that have not expired although their place has ended: forward-auth must refuse them.
SELECT a.jti, a.expires_at_ms
FROM (SELECT * FROM queue.admission
      WHERE event_id = :event_id AND epoch = :epoch AND jti IS NOT NULL AND expires_at_ms > :now_ms OFFSET 0) AS a
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE p.ended_at IS NOT NULL
ORDER BY a.expires_at_ms DESC
LIMIT :revoked_max
