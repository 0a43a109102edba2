"""The queue service: joins, places, the admission loop, claims and lotteries."""
