"""The guard's configuration file."""

import math
from typing import Literal

import msgspec

from npu import names
from npu.thresholds import Settings, Timing
from thermal.budget import Budget
from thermal.eviction import Eviction
from thermal.policy import MissingData, Policy
from thermal.storm import Storm
from thermal.taints import Effect


class ScrapeTls(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How exporters that speak TLS are verified, and what is shown to them; files are followed.

    Pods have no names, so all exporters have a certificate for ``server_name``, signed by the
    authority in ``ca_file``.
    """

    ca_file: str
    server_name: str
    cert_file: str = ""
    key_file: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not (self.ca_file and self.server_name):
            raise ValueError("caFile and serverName are needed")
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("certFile and keyFile go together")


class Scrape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How exporters are read, in seconds. Nodes that are at least warm are read more often."""

    interval_seconds: float = 5.0
    warm_interval_seconds: float = 2.0
    timeout_seconds: float = 2.0
    tls: ScrapeTls | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("interval", "warmInterval", "timeout"):
            value = {
                "interval": self.interval_seconds,
                "warmInterval": self.warm_interval_seconds,
                "timeout": self.timeout_seconds,
            }[name]
            if not 0 < value < math.inf:
                raise ValueError(f"{name}Seconds must be a positive number of seconds")


class Prometheus(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Where Prometheus is and how it is asked; secrets are files, read anew at each query.

    ``matchers`` narrow the query down, for example to one cluster. Readings older than
    ``max_age_seconds`` count as none. ``scrape_warm`` asks the exporters of warm nodes themselves.
    """

    url: str = ""
    matchers: str = ""
    max_age_seconds: float = 45.0
    timeout_seconds: float = 5.0
    username_file: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    insecure_skip_verify: bool = False
    scrape_warm: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        if bool(self.username_file) != bool(self.password_file):
            raise ValueError("usernameFile and passwordFile go together")
        if self.token_file and self.username_file:
            raise ValueError("tokenFile and usernameFile exclude each other")
        for name, value in (
            ("maxAgeSeconds", self.max_age_seconds),
            ("timeoutSeconds", self.timeout_seconds),
        ):
            if not 0 < value <= 3600:  # noqa: PLR2004 (an hour)
                raise ValueError(f"{name} must be above 0 and at most 3600")


class Dra(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Dynamic Resource Allocation: whether nodes have it, and what is written for them.

    ``node_labels`` and ``node_condition`` are what of a Node is written in this mode at all.
    """

    enabled: bool = False
    node_labels: bool = True
    node_condition: bool = True


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The file as a whole.

    ``source`` says where readings come from, ``resources`` under which names NPUs are offered:
    budgets are per name. ``observe_vendors`` are vendors whose nodes are judged and never written
    to. ``include_control_plane`` also manages nodes whose taint keeps ordinary Pods away anyway.
    """

    mode: Literal["enforce", "observe"] = "enforce"
    taint: Literal["NoSchedule", "PreferNoSchedule", "none"] = "NoSchedule"
    thresholds: Settings = Settings()
    scrape: Scrape = Scrape()
    source: Literal["exporters", "prometheus"] = "exporters"
    prometheus: Prometheus = Prometheus()
    missing_data: MissingData = "hold"
    forget_after_seconds: float = 1800.0
    manual_pause_seconds: float = 600.0
    observe_vendors: tuple[str, ...] = ("huawei",)
    include_control_plane: bool = False
    resources: tuple[str, ...] = names.RESOURCES
    budget: Budget = Budget()
    storm: Storm = Storm()
    eviction: Eviction = Eviction()
    dra: Dra = Dra()

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.timing.lost_seconds < self.forget_after_seconds < math.inf:
            raise ValueError("forgetAfterSeconds must be above thresholds.timing.lostSeconds")
        if not 0 <= self.manual_pause_seconds < math.inf:
            raise ValueError("manualPauseSeconds must be a number of seconds")
        if self.source == "prometheus" and not self.prometheus.url:
            raise ValueError("source: prometheus needs prometheus.url")

    @property
    def timing(self) -> Timing:
        """Times that fit the scrape interval."""
        return self.thresholds.timing.for_interval(self.scrape.interval_seconds)

    @property
    def settings(self) -> Settings:
        """Threshold settings with :attr:`timing`."""
        return msgspec.structs.replace(self.thresholds, timing=self.timing)

    @property
    def policy(self) -> Policy:
        """The policy the file describes."""
        return Policy(
            missing_data=self.missing_data,
            lost_seconds=self.timing.lost_seconds,
            forget_seconds=self.forget_after_seconds,
            evict_in=self.eviction.heats,
            expel_after_seconds=(
                self.eviction.no_execute_after_seconds
                if self.eviction.enabled and self.eviction.no_execute
                else None
            ),
        )

    @property
    def effect(self) -> Effect | None:
        """The effect of the taint, None where nodes are not tainted."""
        return None if self.taint == "none" else self.taint
