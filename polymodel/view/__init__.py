"""Answers for readers: tables, text, HTML pages, files and pictures. Knows nothing of what is counted."""
