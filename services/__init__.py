"""The services that sell. This makes `services.queue` a package of ours that never shadows the standard `queue`."""
