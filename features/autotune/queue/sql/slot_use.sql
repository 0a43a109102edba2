-- How long one call occupies a slot, how many calls are claimed, and how many that are over bought, over the last 2000 calls of the line. Slots that
-- are still occupied count with their time so far: leaving them out would leave out the slowest fans.
SELECT count(*) AS calls,
    count(*) FILTER (WHERE state IN ('claimed', 'ended')) AS claimed,
    count(*) FILTER (WHERE over) AS over,
    count(*) FILTER (WHERE over AND bought) AS bought,
    coalesce(sum(greatest(0, until_ms - called_ms)), 0)::double precision / 1000 AS taken_s
FROM (
    SELECT a.state, a.deadline_ms - :claim_window_ms AS called_ms,
        a.state = 'missed' OR p.ended_at IS NOT NULL AS over,
        p.bought_at IS NOT NULL AS bought,
        CASE WHEN a.state = 'missed' THEN a.deadline_ms
            ELSE coalesce(extract(epoch FROM p.ended_at) * 1000, CAST(:now_ms AS bigint)) END AS until_ms
    FROM (
        SELECT * FROM queue.admission
        WHERE event_id = :event_id AND epoch = :epoch AND deadline_ms IS NOT NULL
        ORDER BY lane, join_seq DESC, call DESC
        LIMIT 2000
    ) AS a JOIN queue.place p USING (event_id, epoch, lane, join_seq)
) AS recent
