"""Joins the stages; nothing else knows two of them. `load` is the file to read first."""
