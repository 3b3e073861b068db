"""What is made from records: selection, verdicts, tables, figures."""
