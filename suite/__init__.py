"""What models and tasks both need and neither owns: files, facts about the machine, compiled C++, measured steps."""
