"""Any table in: files and frames of any kind; frames, atomic files and a report of what was guessed out."""
