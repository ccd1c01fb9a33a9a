"""Which cores' data source packets mean what, and what is said where that is not published."""

import importlib.resources
import json

import pytest

from tdprof.decode.spe.data_sources import caveats_of, encoding_of, unknown_encodings

N1, N2, N3, COBALT = 0x413FD0C1, 0x410FD493, 0x410FD8E0, 0x6D0FD490
V3, V3AE = 0x410FD840, 0x410FD830
AMPEREONE, AMPEREONE_A = 0xC00FAC30, 0xC00FAC40


@pytest.mark.parametrize(
    ("midr", "name"),
    [(N1, "arm-common"), (N2, "arm-common"), (V3, "arm-common"), (COBALT, "arm-common"), (AMPEREONE_A, "ampereone")],
)
def test_known_cores(midr: int, name: str) -> None:
    encoding = encoding_of(midr)
    assert encoding
    assert encoding.name == name
    assert unknown_encodings([midr, None]) == []


def test_what_is_not_published_is_said_once_for_each_kind_of_core() -> None:
    for midr in (N3, V3AE, AMPEREONE, 0x610F0220):
        assert encoding_of(midr) is None
    told = unknown_encodings([N3, N3 + 1, N1, AMPEREONE, 0x610F0220])
    assert [text.partition(" writes")[0] for text in told] == [
        "what Neoverse N3",
        "what the core 0x61/0x22",
        "what AmpereOne",
    ]


@pytest.mark.parametrize(
    ("midr", "erratum"),
    [
        (N1, "1694299"),
        (0x414FD0C0, "1694299"),
        (0x414FD0C1, None),
        (0x411FD400, "1694300"),
        (0x411FD401, None),
        (N2, None),
    ],
)
def test_errata_are_told_of_the_revisions_that_have_them(midr: int, erratum: str | None) -> None:
    told = caveats_of([midr, midr, None])
    assert [erratum is not None and f"erratum {erratum}" in text for text in told] == [True] * (erratum is not None)


def test_no_core_is_listed_twice() -> None:
    content = json.loads((importlib.resources.files("tdprof") / "catalogs/spe/data_sources.json").read_text())
    cores = [core for encoding in content["encodings"] for core in encoding["cores"]] + content["not_known"]
    parts = [(int(core["implementer"], 0), int(core["part"], 0)) for core in cores]
    assert len(set(parts)) == len(parts)
    assert all(core["core"] for core in cores)
