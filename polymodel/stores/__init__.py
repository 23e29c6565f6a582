"""Files that long runs keep so that a later run can resume: sealed tables in a folder locked by one
process.
"""
