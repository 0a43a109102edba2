"""The queue service: joins, places, the admission loop, claims, lotteries and access codes."""
