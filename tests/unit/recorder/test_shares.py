"""That no user's files use up what others need."""

import os

from tdprof.recorder.shares import Shares


def test_each_user_leaves_as_much_as_he_takes_and_root_has_all_that_is_left() -> None:
    shares, taken = Shares(64), dict.fromkeys((54321, 54322, 54323, os.geteuid()), 0)
    for uid in taken:
        while shares.left_for(uid):
            shares.take(uid)
            taken[uid] += 1
    assert list(taken.values()) == [32, 16, 8, 8]
    shares.give_back(54321, 30)
    assert [shares.left_for(uid) for uid in taken] == [14, 7, 11, 30]


def test_who_took_more_than_was_left_for_him_gets_no_more() -> None:
    shares = Shares(10)
    shares.take(54321, 8)
    assert shares.left_for(54321) == 0
