-- Writes what became of places whose holders bought, each once: bought, and ended where the pass is revoked. A place that
-- ended for another reason since it was found is completed all the same. Locked in key order.
WITH locked AS MATERIALIZED (
    SELECT p.event_id, p.epoch, p.lane, p.join_seq, p.end_reason, bought.ended
    FROM (SELECT * FROM unnest(CAST(:event_ids AS text[]), CAST(:epochs AS int[]), CAST(:lanes AS int[]),
                               CAST(:join_seqs AS bigint[]), CAST(:ended AS boolean[]))
          AS n (event_id, epoch, lane, join_seq, ended) ORDER BY event_id, lane, join_seq) AS bought
    CROSS JOIN LATERAL (
        SELECT * FROM queue.place p
        WHERE p.event_id = bought.event_id AND p.epoch = bought.epoch AND p.lane = bought.lane AND p.join_seq = bought.join_seq
        FOR UPDATE
    ) AS p
)
UPDATE queue.place p
SET bought_at = coalesce(p.bought_at, clock_timestamp()),
    ended_at = CASE WHEN locked.ended THEN coalesce(p.ended_at, clock_timestamp()) ELSE p.ended_at END,
    end_reason = CASE WHEN locked.ended OR p.end_reason IS NOT NULL THEN 'completed' END
FROM locked
WHERE p.event_id = locked.event_id AND p.epoch = locked.epoch AND p.lane = locked.lane AND p.join_seq = locked.join_seq
RETURNING p.event_id, p.epoch, p.lane, p.join_seq, locked.ended AND locked.end_reason IS NULL AS has_ended
