-- Which of these are orders, of whatever event. $1 references
SELECT reference FROM orders."order" WHERE reference = ANY($1::text[]) AND status <> 'tombstone'
