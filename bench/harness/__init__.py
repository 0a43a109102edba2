"""Both sides on one stage: engines, servers, load, and what was measured."""
