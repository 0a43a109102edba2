-- One row a customer, locked in key order, so that parallel payments of one customer take turns.
INSERT INTO inventory.customer_usage (event_id, customer_key, payments_begun)
SELECT event_id, customer_key, 1
FROM (SELECT DISTINCT event_id, customer_key
      FROM unnest(CAST(:event_ids AS text[]), CAST(:customer_keys AS text[])) AS asked (event_id, customer_key)) AS d
ORDER BY event_id, customer_key
ON CONFLICT (event_id, customer_key) DO UPDATE SET payments_begun = inventory.customer_usage.payments_begun + 1
