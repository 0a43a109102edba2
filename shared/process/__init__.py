"""A process of a service: its settings, and how it fares with clocks, load and engines."""
