-- Live places whose holders bought more than a second ago, with their last call: their end was lost.
SELECT p.lane, p.join_seq, p.holder, p.end_reason,
    a.call, a.state, a.deadline_ms, a.jti, a.expires_at_ms, coalesce(a.extended, false) AS extended
FROM (SELECT * FROM queue.place
      WHERE event_id = :event_id AND epoch = :epoch AND bought_at < clock_timestamp() - interval '1 second' AND ended_at IS NULL
      LIMIT :places_max) AS p
LEFT JOIN LATERAL (
    SELECT * FROM queue.admission a
    WHERE a.event_id = p.event_id AND a.epoch = p.epoch AND a.lane = p.lane AND a.join_seq = p.join_seq
    ORDER BY a.call DESC LIMIT 1
) a ON true
