"""CPUs that go and come while everything is recorded, with events that only keep time."""

import time

from tdprof.errors import TdprofError
from tdprof.recorder.hotplug import CpuFollower

S = 1_000_000_000


class Machine:
    """CPUs that are up, and events whose enabled time goes on with every read, as the kernel's does."""

    def __init__(self, *cpus: int) -> None:
        self.now_ns = 0
        self.online = set(cpus)
        self.opened = dict.fromkeys(cpus, 0)
        self.stopped: dict[int, int] = {}
        self.refuses: set[int] = set()

    def recorded_cpus(self) -> list[int]:
        return list(self.opened)

    def enabled_ns(self, cpu: int) -> int:
        self.now_ns += 100
        return self.stopped.get(cpu, self.now_ns) - self.opened[cpu]

    def open_again(self, cpu: int) -> None:
        if cpu in self.refuses:
            raise TdprofError("No such device")
        self.opened[cpu] = self.now_ns
        self.stopped.pop(cpu, None)

    def take_offline(self, cpu: int) -> None:
        self.online.discard(cpu)
        self.stopped[cpu] = self.now_ns


def follower(machine: Machine) -> CpuFollower:
    return CpuFollower(machine, 0, lambda: machine.online)


def test_nothing_happens_where_nothing_happened() -> None:
    machine = Machine(0, 1, 2)
    cpus = follower(machine)
    for second in range(5):
        machine.now_ns = second * S
        assert cpus.follow(machine.now_ns) == []
    assert cpus.notes() == []


def test_a_clock_of_ticks_stands_still_for_no_longer_than_one() -> None:
    class Ticking(Machine):
        def enabled_ns(self, cpu: int) -> int:
            return time.monotonic_ns() // 10_000_000 * 10_000_000

    machine = Ticking(0, 1)
    cpus = follower(machine)
    for _ in range(3):
        assert cpus.follow(machine.now_ns) == []
    assert cpus.notes() == []


def test_a_cpu_that_comes_back_is_recorded_again_and_its_gap_said() -> None:
    machine = Machine(0, 1)
    cpus = follower(machine)
    machine.now_ns = 2 * S
    machine.take_offline(1)
    machine.now_ns = 3 * S
    assert cpus.follow(machine.now_ns) == []
    machine.now_ns = 5 * S
    machine.online.add(1)
    assert cpus.follow(machine.now_ns) == [1]
    machine.now_ns = 6 * S
    assert cpus.follow(machine.now_ns) == []
    assert cpus.notes() == [
        "CPU 1 went offline and came back: nothing of it was recorded for 3.00 s, until 5.0 s, "
        "nor what was mapped there then"
    ]


def test_where_spe_is_not_begun_again_that_is_said() -> None:
    machine = Machine(0, 1)
    asked: list[int] = []
    cpus = CpuFollower(machine, 0, lambda: machine.online, open_spe=lambda cpu: bool(asked.append(cpu)) or cpu == 3)
    machine.now_ns = S
    machine.take_offline(1)
    machine.online |= {1, 3, 7}
    machine.now_ns = 2 * S
    assert cpus.follow(machine.now_ns) == [1, 3, 7]
    assert asked == [1, 3, 7]
    assert cpus.notes() == [
        "CPU 1 went offline and came back: nothing of it was recorded for 1.00 s, until 2.0 s, "
        "nor what was mapped there then; "
        "SPE records nothing of it since it went",
        "CPU 3 came online while recording; it is recorded from 2.0 s on",
        "CPU 7 came online while recording; it is recorded from 2.0 s on, but not by SPE",
    ]


def test_off_and_on_between_two_looks_is_noticed() -> None:
    machine = Machine(0, 1)
    cpus = follower(machine)
    machine.now_ns = S
    machine.take_offline(1)
    machine.online.add(1)
    machine.now_ns += S // 2
    assert cpus.follow(machine.now_ns) == [1]
    assert "for 0.50 s" in cpus.notes()[0]


def test_twice_is_said_twice() -> None:
    machine = Machine(0, 1)
    cpus = follower(machine)
    for second in (1, 4):
        machine.now_ns = second * S
        machine.take_offline(1)
        machine.online.add(1)
        machine.now_ns += S
        assert cpus.follow(machine.now_ns) == [1]
    assert [note.split(", ")[1] for note in cpus.notes()] == ["until 2.0 s", "until 5.0 s"]


def test_one_that_stays_away_is_said() -> None:
    machine = Machine(0, 1)
    cpus = follower(machine)
    machine.now_ns = 2 * S
    machine.take_offline(1)
    machine.now_ns = 9 * S
    cpus.look()
    assert cpus.notes() == ["CPU 1 went offline: nothing of it was recorded after 2.0 s"]


def test_a_new_one_is_recorded_as_soon_as_that_works() -> None:
    machine = Machine(0)
    cpus = follower(machine)
    machine.now_ns = S
    machine.online.add(7)
    machine.refuses.add(7)
    assert cpus.follow(machine.now_ns) == []
    machine.refuses.clear()
    machine.now_ns = 2 * S
    assert cpus.follow(machine.now_ns) == [7]
    assert cpus.notes() == ["CPU 7 came online while recording; it is recorded from 2.0 s on"]
