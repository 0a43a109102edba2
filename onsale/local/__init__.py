"""The whole suite on one machine: PostgreSQL and Valkey, processes, and one port in front."""
