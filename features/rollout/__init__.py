"""Rollout: a share of the fans passes the line by."""
