"""Formulas, scheduling of events into counter groups, and metric values with their errors."""
