"""The whole job in one minute: two long messages, a flusher killed in the middle."""
