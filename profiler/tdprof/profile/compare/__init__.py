"""What changed between two profiles: functions matched, counts and metrics compared, chance told from change."""

from tdprof.profile.compare.changes import Changes, Comparison, Quantity, compare
from tdprof.profile.compare.matching import Match, MatchedFunctions

__all__ = ["Changes", "Comparison", "Match", "MatchedFunctions", "Quantity", "compare"]
