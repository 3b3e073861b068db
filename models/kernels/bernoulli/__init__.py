"""Random bits for noise inside a recurrence."""
