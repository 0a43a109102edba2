"""The six services. This file makes `services.queue` a package of ours that never shadows the standard `queue`."""
