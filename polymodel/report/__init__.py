"""Reports: tables, text, HTML and pictures. Large libraries are imported at their first use."""
