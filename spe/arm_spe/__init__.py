"""Arm Statistical Profiling Extension: bytes to packets to records."""

from arm_spe.columns import RecordBatch
from arm_spe.counts import Damage, DecodeCounts
from arm_spe.decoder import ColumnMemory, RecordDecoder
from arm_spe.dump import dump_packets
from arm_spe.packet import Kind

__all__ = ["ColumnMemory", "Damage", "DecodeCounts", "Kind", "RecordBatch", "RecordDecoder", "dump_packets"]
