"""What debug data says of a file's code: sorted address ranges with inlined calls, files and lines, as columns."""

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I64, U32, U64
from tdprof.symbolize.symbol_table import read_names
from tdprof.values import dataclass

NO_ID = np.uint32(0xFFFFFFFF)  # absent: no function, no file, no parent


@dataclass(frozen=True, slots=True)
class CodeIndex:
    """The columns of one file. All ids are row numbers; ``NO_ID`` stands for none.

    Attributes:
        range_start: uint64[r], sorted ELF addresses; a range reaches to the next one, the last row only ends.
        range_node: uint32[r], the innermost function or inlined call there.
        range_file, range_line: uint32[r], the source line there.
        node_function: uint32[n], what is called.
        node_file: uint32[n], the file that it stands in, if debug data says it; its lines may be of others.
        node_parent: uint32[n], the node it is inlined into; ``NO_ID`` for a function of its own.
        node_call_file, node_call_line: uint32[n], where in the parent it is called.
        function_name: uint64[f], offsets into ``function_text`` of linkage names (plain ones where there is none).
        file_name: uint64[g], offsets into ``file_text`` of paths.
        function_text, file_text: NUL-terminated UTF-8.
    """

    range_start: U64
    range_node: U32
    range_file: U32
    range_line: U32
    node_function: U32
    node_file: U32
    node_parent: U32
    node_call_file: U32
    node_call_line: U32
    function_name: U64
    file_name: U64
    function_text: memoryview
    file_text: memoryview

    def lookup(self, addresses: U64) -> I64:
        """int64[n]: the range of each address, or -1 where the index knows neither function nor line."""
        row = np.searchsorted(self.range_start, addresses, "right").astype(np.int64) - 1
        known = row >= 0
        at = row[known]
        known[known] = (self.range_node[at] != NO_ID) | (self.range_file[at] != NO_ID)
        row[~known] = -1
        return row

    def function_names(self, ids: NDArray[np.integer]) -> list[str]:
        """The linkage names of some functions."""
        return read_names(self.function_text, self.function_name[ids])

    def file_names(self, ids: NDArray[np.integer]) -> list[str]:
        """The paths of some files."""
        return read_names(self.file_text, self.file_name[ids])


_U32 = np.zeros(0, np.uint32)
_U64 = np.zeros(0, np.uint64)
_TEXT = memoryview(b"")
EMPTY_INDEX = CodeIndex(_U64, _U32, _U32, _U32, _U32, _U32, _U32, _U32, _U32, _U64, _U64, _TEXT, _TEXT)
