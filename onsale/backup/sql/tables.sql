SELECT c.relname::text AS name,
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns,
    (SELECT array_agg(DISTINCT r.relname::text) FROM pg_constraint k JOIN pg_class r ON r.oid = k.confrelid
     WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid <> c.oid) AS refers_to
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname <> 'alembic_version' ORDER BY 1
