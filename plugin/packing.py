"""Which whole devices a container should get: ones that are near to each other. Pure.

Chips of one card, or of one ring of fast links, exchange data much faster than others. A request is
packed into the smallest group that has room for it, so that larger groups stay whole for larger
requests.
"""

from collections.abc import Collection, Mapping, Sequence

from npu.ids import sort_key

#: Groups of a device, outermost first, as in :class:`npu.model.Npu`.
Groups = tuple[str, ...]


def packed(
    groups: Mapping[str, Groups],
    available: Collection[str],
    required: Sequence[str],
    size: int,
) -> tuple[str, ...]:
    """Return ``size`` of the ``available`` identifiers, ``required`` ones first, each once.

    ``groups`` gives the groups of every identifier. The request goes to the innermost group that
    has room for it and holds the required ones; of several, to the one with the least room. Where
    none has, whole groups go first. Fewer than ``size`` come back where there are not enough.
    """
    chosen = list(dict.fromkeys(required))
    wanted = size - len(chosen)
    if wanted <= 0:
        return tuple(chosen)
    free = sorted(set(available) - set(chosen), key=sort_key)
    return (*chosen, *_pick(groups, free, chosen, wanted))


def _pick(
    groups: Mapping[str, Groups], free: Sequence[str], beside: Collection[str], wanted: int
) -> list[str]:
    """Return up to ``wanted`` of ``free``, near to each other and to ``beside``."""
    if len(free) <= wanted:
        return list(free)
    deepest = max(len(groups.get(identifier, ())) for identifier in free)
    for depth in range(deepest, 0, -1):
        clusters = _clusters(groups, free, depth)
        near = set(_clusters(groups, beside, depth))
        roomy = [
            cluster
            for cluster, members in clusters.items()
            if len(members) >= wanted and (not beside or near == {cluster})
        ]
        if roomy:
            rooms = [_clusters(groups, free, level) for level in range(depth, -1, -1)]
            best = min(
                roomy,
                key=lambda cluster: (
                    [len(rooms[up][cluster[: depth - up]]) for up in range(depth + 1)],
                    sort_key(clusters[cluster][0]),
                ),
            )
            if depth == deepest:
                return clusters[best][:wanted]
            return _across(groups, clusters[best], beside, wanted, depth + 1)
    return _across(groups, free, beside, wanted, 1) if deepest else list(free[:wanted])


def _across(
    groups: Mapping[str, Groups],
    free: Sequence[str],
    beside: Collection[str],
    wanted: int,
    depth: int,
) -> list[str]:
    """Return ``wanted`` of ``free``, none of whose groups of ``depth`` has room for all.

    Groups with required devices come first, then the largest; the rest is within one again.
    """
    clusters = _clusters(groups, free, depth)
    near = _clusters(groups, beside, depth)
    ordered = sorted(clusters, key=lambda one: (one not in near, -len(clusters[one])))
    taken: list[str] = []
    rest: list[str] = []
    for cluster in ordered:
        members = clusters[cluster]
        if len(members) <= wanted - len(taken):
            taken += members
        elif cluster in near:
            return taken + _pick(groups, members, near[cluster], wanted - len(taken))
        else:
            rest += members
    left = wanted - len(taken)
    return taken + _pick(groups, rest, (), left) if left else taken


def _clusters(
    groups: Mapping[str, Groups], identifiers: Collection[str], depth: int
) -> dict[Groups, list[str]]:
    """Return the identifiers that share their first ``depth`` groups.

    What is in fewer groups shares nothing more with anybody: it is a cluster of its own.
    """
    found: dict[Groups, list[str]] = {}
    for identifier in identifiers:
        of = groups.get(identifier, ())
        key = of[:depth] if len(of) >= depth else (*of, *[identifier] * (depth - len(of)))
        found.setdefault(key, []).append(identifier)
    return found
