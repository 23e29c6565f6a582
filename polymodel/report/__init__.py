"""Reports: tables, text, HTML, pictures. Heavy libraries are imported where they are first needed."""
