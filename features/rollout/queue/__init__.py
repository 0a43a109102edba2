"""The queue's part: who passes the line by is called at once."""
