"""What long runs keep on disk, for a later run to go on: sealed tables in a folder that one process holds."""
