"""Describes the feature."""

from shared.features import EventLogEngine, Feature

FEATURE = Feature(
    name="event_logs",
    what="Keeps the event log in NATS JetStream or in Kafka instead of Redis.",
    event_logs=[
        EventLogEngine("nats", "features.event_logs.jetstream:open_jetstream", needs="onsale[nats]"),
        EventLogEngine("kafka", "features.event_logs.kafka:open_kafka", needs="onsale[kafka]"),
    ],
)
