"""Elman's recurrence with a full recurrent matrix."""
