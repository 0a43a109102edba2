-- Every place of these events. $1 events
SELECT event_id, epoch, lane, join_seq, holder, user_id, end_reason,
    CAST(extract(epoch FROM joined_at) * 1000 AS bigint) AS joined_ms,
    CAST(extract(epoch FROM ended_at) * 1000 AS bigint) AS ended_ms
FROM queue.place WHERE event_id = ANY($1::text[])
