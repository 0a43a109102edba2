INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, ended_at, end_reason)
SELECT '{event_id}', 1, 0, n, 'fan-' || n, ended, CASE WHEN ended IS NOT NULL THEN reason END
FROM generate_series(1, {places}) n,
LATERAL (SELECT CASE WHEN n <= {finished} AND n % 20 <> 7 OR n % 37 = 5 THEN now() END AS ended,
                CASE WHEN n > {finished} OR n % 11 = 3 THEN 'left' WHEN n % 5 = 1 THEN 'expired' ELSE 'completed' END
                    AS reason
) AS fate;
INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms, jti, expires_at_ms)
SELECT event_id, 1, 0, join_seq, 1, s.state, (extract(epoch FROM now()) * 1000)::bigint + 3600000, 'jti-' || join_seq,
       (extract(epoch FROM now()) * 1000)::bigint + 86400000
FROM queue.place,
LATERAL (SELECT CASE WHEN ended_at IS NOT NULL THEN 'ended' WHEN join_seq > {head} - {called} THEN 'called'
                     WHEN join_seq > {finished} THEN 'claimed' ELSE 'missed' END AS state) AS s
WHERE join_seq <= {head};
UPDATE queue.lane SET head_seq = {head} WHERE event_id = '{event_id}';
ANALYZE queue.place; ANALYZE queue.admission;
