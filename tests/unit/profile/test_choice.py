"""Which function a name means."""

import pytest

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.errors import TdprofError
from tdprof.model.profile import Profile
from tdprof.profile.choice import choose_function


def profile() -> Profile:
    builder = ProfileBuilder()
    builder.add("main", Frame("run(int)", 3, "a.c"), count=60, weight=60)
    builder.add("main", Frame("run(int) [cold]", 9, "a.c"), count=10, weight=10)
    builder.add("main", Call((Frame("square", 2, "m.h"), Frame("runner(int)", 7, "b.c"))), count=20, weight=20)
    builder.add("main", Frame("copy", module="/lib/one.so"), count=6, weight=6)
    builder.add("main", Frame("copy", module="/lib/two.so"), count=4, weight=4)
    return builder.build()


@pytest.mark.parametrize(
    ("text", "name", "module"),
    [
        ("run(int)", "run(int)", "/bin/app"),  # the exact name, although it is part of another
        ("runner", "runner(int)", "/bin/app"),
        ("SQUARE", "square", "/bin/app"),
        ("one.so:copy", "copy", "/lib/one.so"),
        ("/lib/two.so:copy", "copy", "/lib/two.so"),
        ("app:main", "main", "/bin/app"),
        ("run(int) [cold]", "run(int)", "/bin/app"),  # as reports print it
        ("app:runner(int) [isra.0 constprop.1]", "runner(int)", "/bin/app"),
    ],
)
def test_a_name_that_fits_one_function(text: str, name: str, module: str) -> None:
    chosen = choose_function(profile(), text)
    assert (chosen.name, chosen.module) == (name, module)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_name_is_not_every_function(text: str) -> None:
    with pytest.raises(TdprofError, match="name is empty") as raised:
        choose_function(profile(), text)
    assert (raised.value.status, raised.value.hint) == (2, "names as tdprof report --limit 0 prints them")


def test_what_could_not_be_read_is_told_with_a_name_that_is_not_there() -> None:
    with pytest.raises(TdprofError, match="no samples in a function 'nobody'; cannot read mappings"):
        choose_function(profile().without("cannot read mappings.parquet"), "nobody")


def test_pieces_belong_to_their_function() -> None:
    chosen = choose_function(profile(), "run(int)")
    assert sorted(profile().functions.name[id_] for id_ in chosen.ids) == ["run(int)", "run(int) [cold]"]
    assert list(chosen.files) == ["a.c", "a.c"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("run", "2 functions match 'run': run(int) 70.0%, runner(int) 0.0%", "MODULE:NAME"),
        ("copy", "2 functions match 'copy': one.so:copy 6.0%, two.so:copy 4.0%", "'one.so:copy'"),
        ("sqaure", "no samples in a function 'sqaure'", "did you mean square?"),
        ("rum", "no samples in a function 'rum'", "did you mean run?"),
        ("zzzz", "no samples in a function 'zzzz'", "tdprof report --limit 0"),
        ("[no call stack]", "no samples in a function", ""),
    ],
)
def test_a_name_that_fits_none_or_several(text: str, message: str, hint: str) -> None:
    with pytest.raises(TdprofError) as caught:
        choose_function(profile(), text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.status == 2


def test_long_lists_are_cut() -> None:
    builder = ProfileBuilder()
    for i in range(10):
        builder.add(f"step{i}", count=10 - i, weight=10 - i)
    with pytest.raises(TdprofError, match=r"10 functions match 'step': step0 18\.2%, .*step5 9\.1%, and 4 more"):
        choose_function(builder.build(), "step")
