"""pprof as OTLP's request for profiles, ``v1development`` of opentelemetry-proto 1.10 and later, which may change.

A profile of several events is as many profiles here, over one dictionary of strings, functions, locations and stacks;
entry 0 of each table stands for nothing (opentelemetry/proto/profiles/v1development/profiles.proto).
"""

import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence

from tdprof.export import pprof_pb2 as pb
from tdprof.export.wire import field, fixed64, integer, packed, read_fields, text, varint

PATH = "/v1development/profiles"
_SCOPE = "tdprof"
# Attributes by OpenTelemetry's names: of labels of pprof's samples, and of the resource.
_OF_SAMPLES = {
    "pid": "process.pid",
    "tid": "thread.id",
    "comm": "process.executable.name",
    "thread_comm": "thread.name",
}
_OF_RESOURCE = {"service_name": "service.name", "instance": "host.name"}
_BUILD_ID = "process.executable.build_id.gnu"


class _Table:
    """Distinct entries in the order they came; 0 is nothing."""

    def __init__(self, nothing: bytes = b"") -> None:
        self._rows: dict[Hashable, int] = {}
        self.entries = [nothing]

    def row(self, key: Hashable, make: Callable[[], bytes]) -> int:
        """The row of an entry, which is made when it is new."""
        if key not in self._rows:
            self._rows[key] = len(self.entries)
            self.entries.append(make())
        return self._rows[key]


class _Dictionary:
    """What all profiles of a request refer to."""

    def __init__(self, profile: pb.Profile) -> None:
        self._texts: Sequence[str] = profile.string_table
        self._strings, self._attributes, self._stacks = _Table(), _Table(), _Table()
        self._mappings, self._functions, self._locations = _Table(), _Table(), _Table()
        # Defaults bind the loops' variables; mypy takes no lambda with them for a callable without arguments.
        for function in profile.function:
            self._functions.row(function.id, lambda function=function: self._function(function))  # type: ignore[misc]
        for mapping in profile.mapping:
            self._mappings.row(mapping.id, lambda mapping=mapping: self._mapping(mapping))  # type: ignore[misc]
        for location in profile.location:
            self._locations.row(location.id, lambda location=location: self._location(location))  # type: ignore[misc]

    def string(self, value: str) -> int:
        """The row of a text."""
        return self._strings.row(value, value.encode) if value else 0

    def stack(self, locations: Sequence[int]) -> int:
        """The row of a stack, leaf first."""
        ids = tuple(locations)
        return self._stacks.row(ids, lambda: packed(1, [self._known(self._locations, each) for each in ids]))

    def attribute(self, name: str, value: str | int, unit: str = "") -> int:
        """The row of an attribute."""
        return self._attributes.row(
            (name, value, unit),
            lambda: integer(1, self.string(name)) + field(2, _any_value(value)) + integer(3, self.string(unit)),
        )

    def label(self, label: pb.Label) -> int:
        """The row of the attribute that a sample's label is."""
        name = self._texts[label.key]
        value = self._texts[label.str] if label.str else label.num
        return self.attribute(_OF_SAMPLES.get(name, name), value, self._texts[label.num_unit])

    def value_type(self, kind: pb.ValueType) -> bytes:
        """A ``ValueType``."""
        return integer(1, self.string(self._texts[kind.type])) + integer(2, self.string(self._texts[kind.unit]))

    def message(self) -> bytes:
        """The ``ProfilesDictionary``, once all profiles are made."""
        tables = (
            self._mappings,
            self._locations,
            self._functions,
            _Table(),
            self._strings,
            self._attributes,
            self._stacks,
        )
        return b"".join(field(number, entry) for number, table in enumerate(tables, 1) for entry in table.entries)

    def _function(self, function: pb.Function) -> bytes:
        names = (function.name, function.system_name, function.filename)
        texts = b"".join(integer(number, self.string(self._texts[name])) for number, name in enumerate(names, 1))
        return texts + integer(4, function.start_line)

    def _mapping(self, mapping: pb.Mapping) -> bytes:
        places = (mapping.memory_start, mapping.memory_limit, mapping.file_offset)
        known = b"".join(integer(number, place) for number, place in enumerate(places, 1))
        build_id = self._texts[mapping.build_id]
        attributes = [self.attribute(_BUILD_ID, build_id)] if build_id else []
        return known + integer(4, self.string(self._texts[mapping.filename])) + packed(5, attributes)

    def _location(self, location: pb.Location) -> bytes:
        lines = b"".join(
            field(3, integer(1, self._known(self._functions, line.function_id)) + integer(2, line.line))
            for line in location.line
        )
        return integer(1, self._known(self._mappings, location.mapping_id)) + integer(2, location.address) + lines

    @staticmethod
    def _known(table: _Table, key: int) -> int:
        return table.row(key, bytes) if key else 0


def make_request(profile: pb.Profile, labels: Mapping[str, str]) -> bytes:
    """``ExportProfilesServiceRequest`` of one pprof profile; the same for the same profile.

    Args:
        profile: its samples' values are those of its sample types, each of which is a profile of its own.
        labels: by pprof servers' names; ``__name__``, which is theirs alone, is left out.
    """
    dictionary = _Dictionary(profile)
    profiles = [_profile(dictionary, profile, row, labels) for row in range(len(profile.sample_type))]
    scope = field(1, text(1, _SCOPE)) + b"".join(field(2, each) for each in profiles)
    resource = b"".join(
        field(1, text(1, _OF_RESOURCE.get(name, name)) + field(2, _any_value(value)))
        for name, value in sorted(labels.items())
        if name != "__name__"
    )
    return field(1, field(1, resource) + field(2, scope)) + field(2, dictionary.message())


def _profile(dictionary: _Dictionary, profile: pb.Profile, row: int, labels: Mapping[str, str]) -> bytes:
    samples = b"".join(
        field(2, _sample(dictionary, sample, sample.value[row])) for sample in profile.sample if sample.value[row]
    )
    kind = profile.sample_type[row]
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{row} {sorted(labels.items())} {profile.time_nanos} {samples.hex()}")
    content = field(1, dictionary.value_type(kind)) + samples
    content += fixed64(3, profile.time_nanos) + integer(4, profile.duration_nanos)
    if profile.period and profile.period_type == kind:
        content += field(5, dictionary.value_type(kind)) + integer(6, profile.period)
    return content + field(7, identity.bytes)


def _sample(dictionary: _Dictionary, sample: pb.Sample, value: int) -> bytes:
    attributes = [dictionary.label(label) for label in sample.label]
    return integer(1, dictionary.stack(sample.location_id)) + packed(2, attributes) + packed(4, [value])


def _any_value(value: str | int) -> bytes:
    return text(1, value) if isinstance(value, str) else bytes([3 << 3]) + varint(value % (1 << 64))


def failure_in(answer: bytes) -> str:
    """What an ``ExportProfilesServiceResponse`` says was not taken; "" if all was."""
    for number, partial in read_fields(answer):
        if number == 1 and isinstance(partial, bytes):
            told = dict(read_fields(partial))
            rejected, words = told.get(1, 0), told.get(2, b"")
            if rejected:
                said = words.decode("utf-8", "replace") if isinstance(words, bytes) else ""
                return said or f"it did not take {rejected!r} profiles"
    return ""
