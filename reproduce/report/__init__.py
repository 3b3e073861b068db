"""What is made of records: selections, verdicts, tables, figures, pages."""
