"""Redis or Valkey: alone, under Sentinel, or as a cluster; scripts, Pub/Sub, snapshots."""
