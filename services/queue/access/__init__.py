"""Who gets past what holds others back: access codes of lanes, and the rollout."""
