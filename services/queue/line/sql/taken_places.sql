-- Places with a call that was not missed, as words like those of `ended_places`. Nearly always it is their last call.
SELECT lane, join_seq / 64 AS word, bit_or(1::bigint << (63 - join_seq % 64)::int) AS bits
FROM queue.admission
WHERE event_id = :event_id AND epoch = :epoch AND state <> 'missed'
GROUP BY lane, word
