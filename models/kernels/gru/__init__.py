"""The GRU."""
