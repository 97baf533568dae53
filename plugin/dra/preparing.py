"""Prepares claims and takes them back, as often as it is asked."""

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from daemon.logs import fields
from plugin.allocation import AllocationError, Offer, usable_slots
from plugin.cdi import CdiFile
from plugin.claims import Claims
from plugin.dra.pools import slots_by_driver
from plugin.dra.prepared import Checkpoint, HeldDevice, Prepared, Share, cdi_name, from_held, spec
from plugin.publication import Publication

log = logging.getLogger(__name__)

#: What can be in a CDI name: one that cannot would make the file worth nothing for all claims.
_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,120}[A-Za-z0-9])?")


class PrepareError(Exception):
    """A claim cannot be prepared now; ``reason`` is a short code for the metric.

    The kubelet shows the text in an Event of the Pod and asks again.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where claims are prepared: the node's pool, the boot of the machine, and its paths.

    ``on_node`` gives what the container runtime calls a path of the board, links resolved.
    ``simulated`` tells whether the board is.
    """

    pool: str
    boot: str
    on_node: Callable[[str], str]
    simulated: Callable[[], bool] = lambda: False


class AllocationReader(Protocol):
    """Asks the API server which devices a claim was given."""

    def shares(self, claim: ClaimRef, *, driver: str, pool: str) -> tuple[Share, ...]:
        """Return them. Raises UnreachableError, or PrepareError where it said no."""
        ...


class UnreachableError(Exception):
    """The API server did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a claim gets: devices, and by which CDI name a container asks for them."""

    share: Share
    cdi_name: str


class Preparer:
    """Prepares claims of one driver. Used by several threads; one claim at a time.

    Without a ``reader`` nothing says which device a claim was given, so there may be one only.
    """

    def __init__(
        self,
        driver: str,
        *,
        site: Site,
        offer: Publication[Offer],
        checkpoint: Checkpoint,
        cdi: CdiFile,
        claims: Claims,
        reader: AllocationReader | None = None,
    ) -> None:
        self._driver = driver
        self._site = site
        self._offer = offer
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._claims = claims
        self._reader = reader
        self._lock = threading.Lock()
        self._prepared = checkpoint.load()
        self._lost = not checkpoint.complete
        #: Claims that were taken back before the kubelet told which there are.
        self._ended: set[str] = set()
        #: What was said of each claim, and of the record under an empty name.
        self._told: dict[str, set[str]] = {}
        if self._prepared:
            log.info(
                "Found prepared claims",
                extra=fields(
                    driver=driver,
                    claims=len(self._prepared),
                    of_earlier_boots=sum(c.boot != site.boot for c in self._prepared.values()),
                ),
            )

    def prepared(self) -> tuple[Prepared, ...]:
        """Return the claims that are prepared, those of earlier boots included."""
        with self._lock:
            return tuple(self._prepared.values())

    def prepare(self, claim: ClaimRef) -> tuple[Given, ...]:
        """Prepare a claim, or tell again what was told before. Raises PrepareError."""
        if _UID.fullmatch(claim.uid) is None:
            raise PrepareError("unknown_claim", f"{claim.uid[:80]!r} is not the UID of a claim")
        with self._lock:
            known = self._prepared.get(claim.uid)
        # The API server may take its time; nobody else waits for it.
        shares = known.shares if self._is_current(known) else self._shares(claim, known)
        with self._lock:
            known = self._prepared.get(claim.uid)
            if known is None or not self._is_current(known):
                known = self._new(claim, shares)
                self._save({**self._prepared, claim.uid: known})
                log.info(
                    "Prepared a claim",
                    extra=fields(
                        driver=self._driver,
                        namespace=claim.namespace,
                        claim=claim.name,
                        devices=",".join(share.device for share in known.shares),
                    ),
                )
            self._write()
            if self._cdi.problem is not None:
                raise PrepareError("cdi_failed", self._cdi.problem)
            return tuple(
                Given(share=share, cdi_name=cdi_name(self._driver, claim.uid, share.request))
                for share in known.shares
            )

    def unprepare(self, claim: ClaimRef) -> None:
        """Take a claim back; one that is not known is done already. Raises PrepareError."""
        with self._lock:
            if self._lost:
                self._ended.add(claim.uid)
            if claim.uid not in self._prepared:
                return
            self._save({uid: c for uid, c in self._prepared.items() if uid != claim.uid})
            self._write()
            log.info(
                "Took a claim back",
                extra=fields(driver=self._driver, namespace=claim.namespace, claim=claim.name),
            )

    def recover(self, held: Iterable[HeldDevice] | None) -> None:
        """Take from the kubelet what a lost record no longer says; None is not known yet.

        A container that restarts is started without a call, so its claim must be here before.
        """
        with self._lock:
            if not self._lost or held is None:
                return
            found = from_held(self._driver, self._site.boot, held)
            # The answer may be older than the end of a claim.
            found = {uid: claim for uid, claim in found.items() if uid not in self._ended}
            try:
                self._save({**found, **self._prepared}, complete=True)
            except PrepareError as error:
                self._tell_once("", f"Claims cannot be recovered: {error}")
                return
            self._lost = False
            self._told.pop("", None)
            if found:
                log.warning(
                    "Took claims of running containers from the kubelet",
                    extra=fields(driver=self._driver, claims=len(found)),
                )
            self._write()

    def refresh(self) -> None:
        """Put the CDI file right, as devices moved or somebody removed it."""
        with self._lock:
            self._told = {
                uid: texts for uid, texts in self._told.items() if not uid or uid in self._prepared
            }
            self._write()

    def _is_current(self, known: Prepared | None) -> TypeGuard[Prepared]:
        """Tell whether a claim was prepared since the machine was started."""
        return known is not None and known.boot == self._site.boot

    def _new(self, claim: ClaimRef, shares: tuple[Share, ...]) -> Prepared:
        table = self._offer.value.table
        resources = {slot.id: slot.resource for slot in table.slots}
        try:
            for share in shares:
                resource = resources.get(share.device, "this driver")
                usable_slots(self._offer.value, resource, (share.device,))
        except AllocationError as error:
            raise PrepareError(error.reason, str(error)) from error
        made = Prepared(
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            boot=self._site.boot,
            shares=shares,
        )
        self._spec((made,), refused=_raise)
        for share in shares:
            self._claims.give(resources[share.device], (share.device,))
        return made

    def _shares(self, claim: ClaimRef, known: Prepared | None) -> tuple[Share, ...]:
        if self._reader is not None:
            try:
                return self._reader.shares(claim, driver=self._driver, pool=self._site.pool)
            except UnreachableError as error:
                # After a power cut the board may be back before the network is. A claim keeps its
                # devices as long as a Pod has it.
                if known is not None:
                    return known.shares
                raise PrepareError(
                    "api_unreachable",
                    f"the API server does not tell which NPU the claim got: {error}",
                ) from error
        offered = slots_by_driver(self._offer.value.table).get(self._driver, ())
        if not offered:
            raise PrepareError("unknown_device", f"this node has no NPU of {self._driver}")
        if len(offered) > 1:
            raise PrepareError(
                "ambiguous",
                f"this node has {len(offered)} devices of {self._driver} and the driver may not "
                "read claims: set the chart value plugin.dra.readClaims to true",
            )
        return (Share(device=offered[0].id),)

    def _save(self, claims: dict[str, Prepared], *, complete: bool | None = None) -> None:
        try:
            self._checkpoint.save(
                claims.values(), complete=not self._lost if complete is None else complete
            )
        except OSError as error:
            text = f"{self._checkpoint.path}: {error.strerror} ({error.errno})"
            raise PrepareError("checkpoint_failed", text) from error
        self._prepared = claims

    def _write(self) -> None:
        self._cdi.put(self._spec(self._prepared.values(), refused=self._tell_refused))

    def _spec(
        self,
        claims: Iterable[Prepared],
        *,
        refused: Callable[[Prepared, AllocationError], None],
    ) -> Mapping[str, object] | None:
        return spec(
            self._driver, claims, self._offer.value, on_node=self._site.on_node, refused=refused
        )

    def _tell_refused(self, claim: Prepared, error: AllocationError) -> None:
        text = f"The claim {claim.namespace}/{claim.name} gets nothing: {error}"
        self._tell_once(claim.uid, text)

    def _tell_once(self, uid: str, text: str) -> None:
        """Log an error that is found again at each look."""
        told = self._told.setdefault(uid, set())
        if text not in told:
            told.add(text)
            log.error(text, extra=fields(driver=self._driver))


def _raise(_claim: Prepared, error: AllocationError) -> None:
    raise PrepareError(error.reason, str(error)) from error
