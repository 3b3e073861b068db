"""What asv measures: every registered model on every task shape. ``cases.py`` says which, and how a step is made."""
