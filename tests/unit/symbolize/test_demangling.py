import pytest

from tdprof.symbolize import demangler
from tdprof.symbolize.demangling import demangle, split_clone_tags


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("main", "main"),
        ("_ZN3foo3barEv", "foo::bar()"),
        ("_ZN3foo3barEv.cold", "foo::bar() [cold]"),
        ("_ZN3foo3barEv.constprop.0.isra.0", "foo::bar() [constprop.0 isra.0]"),
        ("helper.part.0.cold", "helper [part.0 cold]"),
        ("helper.lto_priv.12", "helper"),
        ("_ZN3foo3barEv.llvm.1234567", "foo::bar()"),
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
        ("_RNvC6_123foo3bar", "123foo::bar"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("_ZN3foo3barEv@plt", "foo::bar()@plt"),
        ("_Znotmangled", "_Znotmangled"),
        ("main.func1", "main.func1"),
        ("", ""),
    ],
)
def test_shown_name(name, shown):
    assert demangle([name]) == [shown]


def test_clone_tags_never_leave_an_empty_name():
    assert split_clone_tags(".cold") == (".cold", "")


def test_names_that_end_their_children_are_given_up(monkeypatch):
    tried = []

    def run_child(names, budget):
        tried.append(names)
        return [], False

    monkeypatch.setattr(demangler, "_run_child", run_child)
    names = [f"_Z{number}" + "S_" * 500 for number in range(3000)]  # in three batches
    assert demangle(names) == names
    assert len(tried) == 2
