"""Who calls whom: all calls, callers and callees."""

from builders.profiles import ProfileBuilder
from tdprof.model.profile import Profile
from tdprof.profile.call_lines import CallLines, call_lines, callees, callers
from tdprof.profile.frames import function_names


def some() -> Profile:
    builder = ProfileBuilder()
    builder.add("main", "a", "f", "g", weight=10)
    builder.add("main", "b", "f", weight=20)
    builder.add("main", "f", "g", "f", "h", weight=30)
    return builder.add("main", weight=40).build()


def told(tree: CallLines) -> list[tuple[str, int, int]]:
    names = function_names(some())
    rows = zip(tree.function.tolist(), tree.total.tolist(), tree.own.tolist(), tree.depth.tolist(), strict=True)
    return [("  " * depth + names[function], total, own) for function, total, own, depth in rows]


def ids(name: str) -> list[int]:
    return [function_names(some()).index(name)]


def test_calls_stand_below_their_callers_heaviest_first() -> None:
    assert told(call_lines(some(), 0)) == [
        ("main", 100, 40),
        ("  f", 30, 0),
        ("    g", 30, 0),
        ("      f", 30, 0),
        ("        h", 30, 30),
        ("  b", 20, 0),
        ("    f", 20, 20),
        ("  a", 10, 0),
        ("    f", 10, 0),
        ("      g", 10, 10),
    ]


def test_callees_begin_with_the_outermost_call() -> None:
    tree = callees(some(), 0, ids("f"))
    expected = [("f", 60, 20), ("  g", 40, 10), ("    f", 30, 0), ("      h", 30, 30)]
    assert told(tree) == expected
    assert tree.share.tolist() == [0.6, 0.4, 0.3, 0.3]
    assert tree.parent.tolist() == [-1, 0, 1, 2]


def test_callers_lead_outwards_and_have_what_the_function_takes_itself() -> None:
    tree = callers(some(), 0, ids("f"))
    assert told(tree) == [
        ("f", 60, 20),
        ("  main", 30, 0),
        ("  b", 20, 20),
        ("    main", 20, 20),
        ("  a", 10, 0),
        ("    main", 10, 0),
    ]


def test_the_heaviest_rows_have_their_callers_among_them() -> None:
    tree = call_lines(some(), 0)
    assert tree.heaviest(3).tolist() == [0, 1, 2]
    assert tree.heaviest(0).tolist() == list(range(10))
    assert tree.heaviest(0, 0.2).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_of_a_function_without_samples_there_is_nothing() -> None:
    assert len(callees(some(), 0, [])) == 0
    assert len(call_lines(ProfileBuilder().build(), 0)) == 0
