"""Call stacks by unwind tables: the programs load, with little work for the verifier."""

import pytest

from builders.verified import MOST_INSTRUCTIONS, verified_instructions


@pytest.mark.needs_bpf
def test_the_verifier_has_not_much_to_do() -> None:
    verified = verified_instructions()
    assert verified.keys() == MOST_INSTRUCTIONS.keys()
    assert {name: count for name, count in verified.items() if not 0 < count <= MOST_INSTRUCTIONS[name]} == {}
