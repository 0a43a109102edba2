"""The whole suite on one machine: engines, processes, and one port in front."""
