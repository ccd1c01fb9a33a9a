"""The methodology tree as lines, in the order in which one drills down."""

from collections.abc import Iterator

from tdprof.catalog.entries import Catalog
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line of the drawn tree: a metric or a metric group, `depth` levels below the roots."""

    name: str
    depth: int
    is_group: bool


def tree_nodes(catalog: Catalog) -> Iterator[TreeLine]:
    """The tree's own nodes, a group below every metric that leads to it."""

    def visit(name: str, depth: int) -> Iterator[TreeLine]:
        yield TreeLine(name, depth, name in catalog.groups)
        for child in catalog.tree.get(name, ()):
            yield from visit(child, depth + 1)

    for root in catalog.roots:
        yield from visit(root, 0)


def tree_lines(catalog: Catalog) -> Iterator[TreeLine]:
    """Every metric: the tree with each group's metrics where the group first appears, then what no node leads to."""
    told: set[str] = set()
    for node in tree_nodes(catalog):
        is_new = node.name not in told
        yield node
        told.add(node.name)
        if node.is_group and is_new:
            members = catalog.groups[node.name].metrics
            told.update(members)
            yield from (TreeLine(member, node.depth + 1, False) for member in members)
    for name, group in catalog.groups.items():
        others = [member for member in group.metrics if member not in told]
        if name not in told and others:
            told.update(others)
            yield TreeLine(name, 0, True)
            yield from (TreeLine(member, 1, False) for member in others)
    yield from (TreeLine(name, 0, False) for name in catalog.metrics if name not in told)
