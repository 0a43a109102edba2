"""One update to all streams of a topic: snapshots, deltas, frames, heartbeats."""
