-- Inserts calls. `void`: the number has no live place, so nothing was inserted; `ended`: its place has ended. `fresh`:
-- inserted by this statement, `wait_s` after the fan joined.
WITH call AS MATERIALIZED (
    SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, c.*
    FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[]), CAST(:calls AS int[]),
                         CAST(:ats_ms AS bigint[])) AS c (lane, join_seq, call, at_ms)
), known AS MATERIALIZED (
    SELECT c.*, p.joined_at, p.end_reason IS NOT NULL AS ended FROM call c
    JOIN queue.place p USING (event_id, epoch, lane, join_seq)
), written AS (
    INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms)
    SELECT :event_id, :epoch, lane, join_seq, call, 'called', at_ms FROM known WHERE NOT ended
    ORDER BY lane, join_seq, call
    ON CONFLICT DO NOTHING
    RETURNING lane, join_seq, call
)
SELECT c.lane, c.join_seq, c.call, k.ended IS NOT FALSE AS void, k.ended IS TRUE AS ended,
       w.join_seq IS NOT NULL AS fresh,
       CAST(extract(epoch FROM clock_timestamp() - k.joined_at) AS double precision) AS wait_s
FROM call c
LEFT JOIN known k USING (lane, join_seq, call)
LEFT JOIN written w USING (lane, join_seq, call)
