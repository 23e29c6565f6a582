"""Answers for readers: tables, text, HTML pages, files and plots. It knows nothing of what is counted."""
