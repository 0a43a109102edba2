"""What the five services do not need in order to queue, hold, sell and refund: a folder a feature."""
