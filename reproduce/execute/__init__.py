"""Who does the runs, and what one sees meanwhile."""
