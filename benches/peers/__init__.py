"""Other queues, measured by the same yardstick. Each script runs in the bench environment, not in Weir's."""
