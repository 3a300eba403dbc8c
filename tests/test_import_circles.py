"""No module of the product imports itself by way of others, imports for types included."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

TOPS = ("actors", "apis", "policy", "runtime")


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, the first again at the end; none where there is no ring."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_leads_back() -> None:
    graph = grimp.build_graph(*TOPS, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 300
    assert not circle(imports), " <- ".join(circle(imports))


def test_a_ring_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])
