"""Claims are prepared once, told again as often as wanted, and survive what a board survives."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kubelet.podresources import HeldClaim
from npu.model import Npu
from plugin.allocation import Offer
from plugin.cdi import CdiFile
from plugin.claims import Claims
from plugin.devices import build_table, withheld
from plugin.dra.apiserver import shares_in
from plugin.dra.prepared import Checkpoint, Share
from plugin.dra.preparing import (
    AllocationReader,
    ClaimRef,
    PrepareError,
    Preparer,
    Site,
    UnreachableError,
)
from plugin.health import HealthState
from plugin.publication import Publication
from plugin.sharing import Sharing
from tests.unit.plugin.boards import RESOURCES, drm_npu

DRIVER = "npu.rockchip.com"
CLAIM = ClaimRef(namespace="team", name="pod-npu", uid="1234")
OTHER = ClaimRef(namespace="team", name="other-npu", uid="5678")


class Answers:
    """An API server that gives an answer or an error."""

    def __init__(self, answer: tuple[Share, ...] | Exception) -> None:
        self.answer = answer
        self.asked = 0

    def shares(self, _claim: ClaimRef, *, driver: str, pool: str) -> tuple[Share, ...]:
        """Answer."""
        assert (driver, pool) == (DRIVER, "node-1")
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def offer_of(*npus: Npu, slots: int = 1, well: bool = True) -> Offer:
    """Return an offer of these NPUs."""
    state = HealthState(healthy=well, reason="ok" if well else "lost", detail="look at it")
    table = build_table(
        {npu.id: npu for npu in npus},
        {npu.id: state for npu in npus},
        resources=RESOURCES,
        held={},
        sharing=Sharing(slots=slots),
    )
    return Offer(table=table, shares=slots > 1)


@pytest.fixture
def preparer(tmp_path: Path) -> Callable[..., Preparer]:
    """Make preparers that have one directory, as starts of one driver do."""

    def make(
        offer: Offer | Publication[Offer] | None = None,
        *,
        boot: str = "b1",
        reader: AllocationReader | None = None,
    ) -> Preparer:
        return Preparer(
            DRIVER,
            site=Site(pool="node-1", boot=boot, on_node=lambda path: f"/board{path}"),
            offer=offer
            if isinstance(offer, Publication)
            else Publication(offer or offer_of(drm_npu())),
            checkpoint=Checkpoint(tmp_path / "checkpoint.json"),
            cdi=CdiFile(tmp_path / "cdi.json"),
            claims=Claims(),
            reader=reader,
        )

    return make


def cdi_of(tmp_path: Path) -> dict[str, dict[str, object]]:
    """Return the devices of the CDI file by name."""
    content = json.loads((tmp_path / "cdi.json").read_text())
    assert content["kind"] == f"{DRIVER}/claim"
    return {device["name"]: device["containerEdits"] for device in content["devices"]}


def test_a_whole_device_needs_no_api_server(
    preparer: Callable[..., Preparer], tmp_path: Path
) -> None:
    """The claim gets the one NPU, with nodes and environment, and the same when asked again."""
    one = preparer()

    first = one.prepare(CLAIM)

    assert first == one.prepare(CLAIM)
    assert [(g.share.device, g.share.request, g.cdi_name) for g in first] == [
        ("npu0", "", "npu.rockchip.com/claim=1234")
    ]
    edits = cdi_of(tmp_path)["1234"]
    assert "NPU_DEVICE_IDS=npu0" in edits["env"]  # type: ignore[operator]
    assert "RKNN_NPU_DEVICE=/dev/dri/card1" in edits["env"]  # type: ignore[operator]
    nodes = edits["deviceNodes"]
    assert isinstance(nodes, list)
    assert nodes[0]["hostPath"] == "/board/dev/dri/by-path/platform-fda00000.npu-card"
    one.unprepare(CLAIM)
    one.unprepare(CLAIM)
    assert not (tmp_path / "cdi.json").exists()
    assert one.prepared() == ()


def test_what_was_promised_comes_back_with_the_next_start(
    preparer: Callable[..., Preparer], tmp_path: Path
) -> None:
    """Also where the CDI file was lost, and where the device is ill meanwhile."""
    told = preparer().prepare(CLAIM)
    (tmp_path / "cdi.json").unlink()

    after = preparer(offer_of(drm_npu(), well=False))
    after.refresh()

    assert "1234" in cdi_of(tmp_path)
    assert after.prepare(CLAIM) == told
    with pytest.raises(PrepareError, match="look at it") as error:
        after.prepare(OTHER)
    assert error.value.reason == "unhealthy_device"


def test_checkpoint_that_makes_no_sense_is_put_aside(
    preparer: Callable[..., Preparer], tmp_path: Path
) -> None:
    """The kubelet asks again; the broken file stays for whoever looks."""
    deep = f'{{"version": 1, "claims": [], "x": {"[" * 100_000}{"]" * 100_000}}}'
    for text in ("{", '{"version": 9, "claims": []}', "", deep):
        (tmp_path / "checkpoint.json").write_text(text)

        one = preparer()

        assert one.prepared() == ()
        assert (tmp_path / "checkpoint.broken").read_text() == text
        one.prepare(CLAIM)
        one.unprepare(CLAIM)


def test_claims_of_a_lost_record_are_those_that_containers_have(
    preparer: Callable[..., Preparer], tmp_path: Path
) -> None:
    """The kubelet tells them with their CDI names; who asks anew meanwhile is kept."""
    uids = [f"{number}2345678-1234-1234-1234-123456789abc" for number in range(3)]
    refs = [ClaimRef(namespace="team", name=f"claim-{uid[0]}", uid=uid) for uid in uids]
    one = preparer(offer_of(drm_npu(), slots=3), reader=Answers((Share(device="npu0-s1"),)))
    one.prepare(refs[0])
    one.recover([])
    one.recover(
        [
            HeldClaim(
                namespace="t",
                name="x",
                device="npu0-s0",
                cdi_names=(f"{DRIVER}/claim={uids[1]}",),
            )
        ]
    )
    assert [claim.uid for claim in one.prepared()] == uids[:1], "nothing was lost"
    before = cdi_of(tmp_path)
    (tmp_path / "checkpoint.json").write_text("damaged")
    held = [
        HeldClaim(
            namespace="team",
            name="claim-0",
            device="npu0-s1",
            cdi_names=(f"{DRIVER}/claim={uids[0]}",),
        ),
        *(
            HeldClaim(
                namespace="team",
                name="claim-1",
                device=device,
                cdi_names=(f"{DRIVER}/claim={uids[1]}-{request}", "vendor.com/other=1"),
            )
            for device, request in (("npu0-s0", "a"), ("npu0-s2", "b-c"))
        ),
    ]

    again = preparer(offer_of(drm_npu(), slots=3), reader=Answers((Share(device="npu0-s1"),)))
    again.recover(None)
    assert again.prepared() == ()
    again.prepare(refs[2])
    again.recover(held)
    again.recover([])

    assert {claim.uid for claim in again.prepared()} == set(uids)
    (second,) = (claim for claim in again.prepared() if claim.uid == uids[1])
    assert second.by_request() == {"a": ("npu0-s0",), "b-c": ("npu0-s2",)}
    found = cdi_of(tmp_path)
    assert found[uids[0]] == before[uids[0]]
    assert {f"{uids[1]}-a", f"{uids[1]}-b-c", uids[2]} <= found.keys()
    assert {claim.uid for claim in preparer().prepared()} == set(uids)


def test_killed_driver_asks_again_what_it_had_not_heard(
    preparer: Callable[..., Preparer], tmp_path: Path
) -> None:
    """A record made while the kubelet had not told yet is no complete one, for the next start."""
    uid = "12345678-1234-1234-1234-123456789abc"
    name = f"{DRIVER}/claim={uid}"
    held = [HeldClaim(namespace="team", name="c", device="npu0", cdi_names=(name,))]
    (tmp_path / "checkpoint.json").write_text("damaged")
    preparer()
    second = preparer()
    second.prepare(CLAIM)
    third = preparer()
    third.recover(held)

    assert {claim.uid for claim in third.prepared()} == {CLAIM.uid, uid}
    assert uid in cdi_of(tmp_path)
    fourth = preparer()
    fourth.unprepare(ClaimRef(namespace="team", name="c", uid=uid))
    fourth.recover(held)
    assert {claim.uid for claim in fourth.prepared()} == {CLAIM.uid}


def test_claim_that_ended_is_not_recovered(preparer: Callable[..., Preparer]) -> None:
    """The kubelet's answer may be some seconds old."""
    uid = "12345678-1234-1234-1234-123456789abc"
    one = preparer()
    one.unprepare(ClaimRef(namespace="team", name="c", uid=uid))
    one.recover(
        [
            HeldClaim(
                namespace="team",
                name="c",
                device="npu0",
                cdi_names=(f"{DRIVER}/claim={uid}",),
            )
        ]
    )
    assert one.prepared() == ()


def test_nobody_waits_for_the_api_server_but_who_asks(
    preparer: Callable[..., Preparer], tmp_path: Path
) -> None:
    """While it does not answer, other claims, the pages and the liveness of the driver go on."""
    asked, answer = threading.Semaphore(0), threading.Event()

    class Slow(Answers):
        def shares(self, claim: ClaimRef, *, driver: str, pool: str) -> tuple[Share, ...]:
            if claim == CLAIM:
                asked.release()
                assert answer.wait(30)
            return super().shares(claim, driver=driver, pool=pool)

    one = preparer(offer_of(drm_npu(), slots=3), reader=Slow((Share(device="npu0-s1"),)))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(one.prepare, CLAIM) for _ in range(2)]
        for _ in waiting:
            assert asked.acquire(timeout=30)
        assert one.prepare(OTHER)
        one.refresh()
        assert [claim.uid for claim in one.prepared()] == [OTHER.uid]
        answer.set()
        first, second = (item.result(30) for item in waiting)

    assert first == second
    assert cdi_of(tmp_path).keys() == {CLAIM.uid, OTHER.uid}


@pytest.mark.parametrize("uid", ["", "a b", "../x", "a" * 200, "é", "-a", "a\n"])
def test_claim_without_a_uid_spoils_no_other(
    preparer: Callable[..., Preparer], tmp_path: Path, uid: str
) -> None:
    """A container runtime refuses a CDI file as a whole where one name in it is none."""
    one = preparer()
    one.prepare(CLAIM)
    with pytest.raises(PrepareError, match="not the UID") as error:
        one.prepare(ClaimRef(namespace="team", name="odd", uid=uid))
    assert error.value.reason == "unknown_claim"
    assert cdi_of(tmp_path).keys() == {CLAIM.uid}


def test_devices_that_do_not_go_together_are_refused(
    preparer: Callable[..., Preparer], caplog: pytest.LogCaptureFixture
) -> None:
    """Not with the runtime's "unresolvable CDI devices" when the container starts."""
    both = Answers(tuple(Share(device=device) for device in ("npu0", "npu1")))
    offer = replace(offer_of(drm_npu(0), drm_npu(1)), container_paths={"card": "/dev/npu"})
    one = preparer(offer, reader=both)

    with pytest.raises(PrepareError, match="ask for one NPU") as error:
        one.prepare(CLAIM)

    assert error.value.reason == "path_conflict"
    assert one.prepared() == ()
    one.refresh()
    assert not caplog.records


def test_a_claim_that_gets_nothing_any_more_is_told_once(
    preparer: Callable[..., Preparer], caplog: pytest.LogCaptureFixture
) -> None:
    """At each look it is found again; what was said of a claim is forgotten with it."""
    both = Answers(tuple(Share(device=device) for device in ("npu0", "npu1")))
    fine = offer_of(drm_npu(0), drm_npu(1))
    offer = Publication(fine)
    one = preparer(offer, reader=both)
    for told in (1, 2):
        one.prepare(CLAIM)
        offer.publish(replace(fine, container_paths={"card": "/dev/npu"}))
        for _ in range(3):
            one.refresh()
        assert caplog.text.count("gets nothing") == told
        offer.publish(fine)
        one.unprepare(CLAIM)
        one.refresh()


def test_record_comes_before_the_promise(preparer: Callable[..., Preparer], tmp_path: Path) -> None:
    """A claim that could not be written down is not prepared, and none is forgotten for it."""
    one = preparer()
    one.prepare(CLAIM)
    (tmp_path / "checkpoint.part").mkdir()

    with pytest.raises(PrepareError) as error:
        one.prepare(OTHER)
    with pytest.raises(PrepareError):
        one.unprepare(CLAIM)

    assert error.value.reason == "checkpoint_failed"
    assert [claim.uid for claim in one.prepared()] == ["1234"]


def test_several_devices_need_to_be_told(preparer: Callable[..., Preparer], tmp_path: Path) -> None:
    """Without an account the driver says what to set; with it each request has its own name."""
    shared = offer_of(drm_npu(), slots=3)

    with pytest.raises(PrepareError, match=r"plugin\.dra\.readClaims"):
        preparer(shared).prepare(CLAIM)
    reader = Answers((Share(device="npu0-s1", request="a"), Share(device="npu0-s2", request="b")))
    given = preparer(shared, reader=reader).prepare(CLAIM)

    assert [g.cdi_name.partition("=")[2] for g in given] == ["1234-a", "1234-b"]
    devices = cdi_of(tmp_path)
    assert "NPU_CORE_HINT=1" in devices["1234-a"]["env"]  # type: ignore[operator]
    assert "NPU_DEVICE_IDS=npu0-s2" in devices["1234-b"]["env"]  # type: ignore[operator]


def test_after_a_power_cut_the_record_stands_in_for_the_network(
    preparer: Callable[..., Preparer],
) -> None:
    """A new boot asks again, because the claim may have got another device; or uses the record."""
    shared = offer_of(drm_npu(), slots=3)
    reader = Answers((Share(device="npu0-s1", request="a"),))
    preparer(shared, reader=reader).prepare(CLAIM)
    reader.answer = UnreachableError("no route")

    dark = preparer(shared, boot="b2", reader=reader)
    given = dark.prepare(CLAIM)

    assert [g.share.device for g in given] == ["npu0-s1"]
    with pytest.raises(PrepareError) as error:
        dark.prepare(OTHER)
    assert error.value.reason == "api_unreachable"
    reader.answer = (Share(device="npu0-s2", request="a"),)
    moved = preparer(shared, boot="b3", reader=reader).prepare(CLAIM)
    assert [g.share.device for g in moved] == ["npu0-s2"]


def test_an_npu_of_a_pod_of_the_other_mode_is_not_given(
    preparer: Callable[..., Preparer],
) -> None:
    """A node that changed its mode waits for the last Pod of the old one."""
    offer = offer_of(drm_npu())
    taken = Offer(table=withheld(offer.table, {"npu0"}))

    with pytest.raises(PrepareError, match="other mode") as error:
        preparer(taken).prepare(CLAIM)

    assert error.value.reason == "held_in_other_mode"


def test_only_results_of_this_driver_and_node_count() -> None:
    """A claim may hold devices of other drivers; a subrequest counts as its request."""

    def result(**changes: str) -> dict[str, str]:
        return {"driver": DRIVER, "pool": "node-1", "request": "r", "device": "npu0", **changes}

    results = [result(request="r/small"), result(driver="gpu"), result(pool="node-2")]
    body = {
        "metadata": {"uid": "1234"},
        "status": {"allocation": {"devices": {"results": results}}},
    }

    assert shares_in(body, CLAIM, driver=DRIVER, pool="node-1") == (
        Share(device="npu0", request="r"),
    )
    bad: object
    for bad in (body | {"status": None}, body | {"metadata": {"uid": "new"}}, [], None):
        with pytest.raises(PrepareError):
            shares_in(bad, CLAIM, driver=DRIVER, pool="node-1")
