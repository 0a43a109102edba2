-- Money, refunds, mails, redemptions and open orders without an order: these tables have no foreign keys.
SELECT p.reference FROM (
    SELECT reference FROM orders.money_entry UNION ALL SELECT reference FROM orders.refund
    UNION ALL SELECT reference FROM orders.mail WHERE reference IS NOT NULL
    UNION ALL SELECT reference FROM orders.promo_redemption UNION ALL SELECT reference FROM orders.open_order) AS p
WHERE NOT EXISTS (SELECT FROM orders."order" o WHERE o.reference = p.reference AND o.status <> 'tombstone' OFFSET 0)
