"""A recurrence whose units see only themselves."""
