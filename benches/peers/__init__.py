"""Other queues, measured in the same way. Each script runs in the bench environment, not in Weir's."""
