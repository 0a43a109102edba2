"""The event log: Redis Streams, NATS JetStream or Kafka behind one small protocol, chosen by address."""
