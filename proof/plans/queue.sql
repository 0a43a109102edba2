-- One room with one used lane. A fifth of its places has ended, every tenth is of a signed-in fan; each had one call. Holders
-- are as long as real ones: the size of an index decides between two that seem equally good.
INSERT INTO queue.room (event_id, epoch, generation, redis_instance_id, state, version, ordering, rate_per_s, burst, max_active, session_s,
    claim_window_s, liveness_window_s, max_misses, returning_share, tickets_per_order, stock_coupling)
VALUES ('e', 1, 1, '', 'open', 1, 'fifo', 1, 1, 1, 900, 60, 60, 3, 0.1, 8, true);
INSERT INTO queue.lane (event_id, epoch, lane, head_seq) VALUES ('e', 1, 0, {size}), ('e', 1, 1, 0);
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, ended_at, end_reason)
SELECT 'e', 1, 0, i, CASE WHEN i % 10 = 1 THEN 'user.' ELSE '' END || md5(CAST(i AS text)), CASE WHEN i % 5 = 0 THEN now() END,
       CASE WHEN i % 5 = 0 THEN 'expired' END
FROM generate_series(1, {size}) AS i;
UPDATE queue.place SET bought_at = now() - interval '1 hour' WHERE join_seq <= 20 AND ended_at IS NULL;
INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms, jti, expires_at_ms)
SELECT 'e', 1, 0, i, 1, (ARRAY['called', 'claimed', 'missed', 'ended'])[i % 4 + 1], i,
       CASE WHEN i % 4 = 1 THEN 'j' || i END, CASE WHEN i % 4 = 1 THEN 100000 + i END
FROM generate_series(1, {size}) AS i;
INSERT INTO queue.access_code (event_id, code_hash, lane, uses_max, epoch, uses)
SELECT 'e', decode(md5(CAST(i AS text)), 'hex'), 0, 5, 1, 0 FROM generate_series(1, {size}) AS i;
INSERT INTO queue.access_code_use
SELECT 'e', 1, decode(md5(CAST(i AS text)), 'hex'), md5(CAST(i AS text)), 0, i FROM generate_series(1, {size}) AS i;
INSERT INTO queue.audit_log (subject, actor, action, version, before, after)
SELECT 'event:e', 'a', 'rate', i, '{{}}', 
       '{{"epoch": 1, "rollout_percent": 100, "state": "open", "rate_per_s": 1, "burst": 1, "claim_window_s": 60}}'
FROM generate_series(1, {size}) AS i;
