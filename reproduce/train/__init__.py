"""One training, from the first batch to its record."""
