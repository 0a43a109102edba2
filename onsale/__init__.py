"""The command people type, and what it starts: the embedded engines, the payment sandbox and the five services."""
