"""The taint list: foreign entries stay exactly as they are."""

from hypothesis import given
from hypothesis import strategies as st

from thermal.names import OWN_TAINTS, TAINT_CRITICAL, TAINT_HOT
from thermal.taints import HotTaint, Taint, applied_effect, merged

FOREIGN: Taint = {"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-01-01"}
HOT: Taint = {"key": TAINT_HOT, "value": "80", "effect": "NoSchedule"}
WANTED = HotTaint(effect="NoSchedule", value="80")


def test_a_new_taint_comes_last() -> None:
    """Foreign entries keep their place and every field."""
    assert merged([FOREIGN], WANTED) == [FOREIGN, HOT]


def test_a_right_list_is_not_written() -> None:
    """Nothing to do is None, not an equal list."""
    assert merged([FOREIGN, HOT], WANTED) is None
    assert merged([FOREIGN], None) is None


def test_a_changed_value_stays_in_place() -> None:
    """Updating our entry moves nothing."""
    other: Taint = {"key": "z", "effect": "NoSchedule"}

    result = merged([FOREIGN, HOT, other], HotTaint(effect="PreferNoSchedule", value="85"))

    assert result is not None
    assert [taint["key"] for taint in result] == ["a", TAINT_HOT, "z"]
    assert result[1] == {"key": TAINT_HOT, "value": "85", "effect": "PreferNoSchedule"}


def test_an_unknown_value_keeps_the_present_one() -> None:
    """Without a temperature the last one stays on the node."""
    assert merged([HOT], HotTaint(effect="NoSchedule")) is None


def test_release_removes_every_own_key() -> None:
    """Also an entry of an earlier configuration, and a doubled one."""
    critical: Taint = {"key": TAINT_CRITICAL, "effect": "NoExecute"}
    doubled: Taint = {"key": TAINT_HOT, "effect": "PreferNoSchedule"}

    assert merged([HOT, FOREIGN, critical, doubled], None) == [FOREIGN]
    assert merged([HOT, FOREIGN, doubled], WANTED) == [HOT, FOREIGN]


def test_applied_effect_looks_at_our_key_only() -> None:
    """Foreign taints do not count as ours."""
    assert applied_effect([FOREIGN]) is None
    assert applied_effect([FOREIGN, HOT]) == "NoSchedule"


taints = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "node.kubernetes.io/x", *sorted(OWN_TAINTS)]),
            "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        },
        optional={"value": st.sampled_from(["", "80", "85"])},
    ),
    max_size=8,
)
wishes = st.one_of(
    st.none(),
    st.builds(
        HotTaint,
        effect=st.sampled_from(["NoSchedule", "PreferNoSchedule"]),
        value=st.one_of(st.none(), st.sampled_from(["80", "85"])),
    ),
)


@given(taints, wishes)
def test_foreign_entries_are_verbatim_and_writing_settles(
    before: list[Taint], hot: HotTaint | None
) -> None:
    """For any list: foreign entries unchanged in order, and a second look finds nothing to do."""
    after = merged(before, hot)
    result = before if after is None else after

    def foreign(entries: list[Taint]) -> list[Taint]:
        return [taint for taint in entries if taint["key"] not in OWN_TAINTS]

    assert foreign(result) == foreign(before)
    assert [t["key"] for t in result].count(TAINT_HOT) == (0 if hot is None else 1)
    assert merged(result, hot) is None


def test_critical_taint_joins_the_hot_one_and_keeps_what_the_server_added() -> None:
    """One entry per key; the time of a present one is the API server's."""
    critical = {"key": TAINT_CRITICAL, "effect": "NoExecute"}
    stored = {**critical, "timeAdded": "2026-01-01T00:00:00Z"}

    assert merged([FOREIGN], WANTED, critical=True) == [FOREIGN, HOT, critical]
    assert merged([stored, HOT, FOREIGN], WANTED, critical=True) is None
    assert merged([stored, HOT, FOREIGN], WANTED) == [HOT, FOREIGN]
    assert merged([FOREIGN, stored], None) == [FOREIGN]
