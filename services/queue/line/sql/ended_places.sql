-- Ended places as 64-bit words of the bitmap in Redis, the lowest number in the highest bit. One pass over the line
-- without a sort: returning a row for each ended place would cost more than reading all of them.
SELECT lane, join_seq / 64 AS word, bit_or(1::bigint << (63 - join_seq % 64)::int) AS bits
FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND ended_at IS NOT NULL
GROUP BY lane, word
