"""What comes from one look to the next is known, of late and of what is written now."""

from tdprof.cli.disk_growth import DiskGrowth


def test_the_most_of_late_counts_and_what_a_new_one_begins_with_does_not() -> None:
    growth = DiskGrowth()
    for taken in (10, 30, 35):
        growth.saw(taken)
    assert growth.most_bytes == 20
    growth.begin(100)
    growth.saw(103)
    growth.saw(90)  # something went
    assert growth.most_bytes == 20
    for _ in range(60):
        growth.saw(91)
    assert growth.most_bytes <= 1
