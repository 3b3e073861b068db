"""A stand-in for NTU RGB+D: generated motion in front of simulated cameras."""
