"""The event log in NATS JetStream or in Kafka instead of Redis."""
