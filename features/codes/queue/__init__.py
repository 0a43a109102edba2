"""The queue's part: codes are stored, open their lanes, and are used up."""
