-- What PostgreSQL has counted so far: bytes of WAL, row versions, updates of orders, and those that were HOT.
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS wal_bytes,
    (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables)::bigint AS versions,
    (SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'orders' AND relname = 'order') AS updates,
    (SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'orders' AND relname = 'order') AS hot
