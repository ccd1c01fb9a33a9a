"""The programs that a sample goes through, one a step, which call each other through an array of programs.

Programs of one array are of one type, and what interrupts another must not write over what that is at: so samples that
the kernel takes at other places go through programs of their own, loaded out of the same instructions.
"""

from collections.abc import Mapping
from dataclasses import field

from tdprof.recorder.bpf import maps as bpf_maps
from tdprof.recorder.bpf.object_file import BPF_PROG_TYPE_PERF_EVENT, BpfObject, load_one
from tdprof.values import dataclass

# enum step of bpf/sample.h
STEPS = ("sample", "walk", "copy", "store", "python", "java", "by_kernel")


@dataclass(frozen=True, slots=True)
class StepPrograms:
    """One such array.

    Attributes:
        found: instructions, with what they are told of this kind of sample.
        own_maps: descriptors of the array, ``steps``, and of what only its programs write.
        kind: the kernel's type of program.
        programs: descriptors of what is loaded, by name.
    """

    found: BpfObject
    own_maps: Mapping[str, int]
    kind: int = BPF_PROG_TYPE_PERF_EVENT
    programs: dict[str, int] = field(default_factory=dict)

    def load(self, maps: Mapping[str, int], name: str) -> int:
        """The descriptor of a program, with these maps and its own. Raises LoadError."""
        return load_one(self.found, {**maps, **self.own_maps}, name, self.kind)

    def use(self, name: str, program: int) -> int | None:
        """Have the others call a program from now on; returns the one that it replaces."""
        bpf_maps.update_u32(self.own_maps["steps"], STEPS.index(name), program)
        before = self.programs.get(name)
        self.programs[name] = program
        return before
