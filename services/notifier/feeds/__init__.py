"""Feeds: the latest state of each event or order with listeners, from Pub/Sub, its log and the services."""
