"""Values that cannot work are refused before anything is installed, and the key is named."""

import itertools

import msgspec
import pytest

from ci import chart
from ci.chart import HELM_VERSIONS
from ci.command import CommandError
from npu.thresholds import Settings

REJECTED = [
    ("nope=1", "nope"),
    ("plugin.nope=1", "nope"),
    ("plugin.image.nope=1", "nope"),
    ("plugin.serviceAccount.nope=1", "nope"),
    ("plugin.resources.memory=1", "memory"),
    ("plugin.library.mode=copy", "mode"),
    ("plugin.library.searchPaths={lib}", "searchPaths"),
    ("plugin.library.searchPaths={/opt/npu}", "searchPaths"),
    ("plugin.sharing.slots=0", "slots"),
    ("plugin.sharing.slots=half", "slots"),
    ("plugin.sharing.resourceName=other", "resourceName"),
    ("plugin.sharing.maxSlotsPerContainer=0", "maxSlotsPerContainer"),
    ("plugin.heat.enabled=maybe", "enabled"),
    ("plugin.heat.enabled=false,plugin.heat.clampFrequency=true", "plugin.heat.clampFrequency"),
    ("plugin.heat.clampRatio=1", "clampRatio"),
    ("plugin.heat.clampDirectory=/sys/class/devfreq", "clampDirectory"),
    ("plugin.heat.clampDirectory=/sys/devices/../x/devfreq", "clampDirectory"),
    ("plugin.deviceInjection=cri", "deviceInjection"),
    ("plugin.health.openDevice=perhaps", "openDevice"),
    ("plugin.heat.lowerEverySeconds=0", "lowerEverySeconds"),
    ("plugin.extraDevices={/etc/passwd}", "extraDevices"),
    ("plugin.extraDevices={/dev/../etc/passwd}", "extraDevices"),
    ("plugin.extraDevices={/dev/./rga}", "extraDevices"),
    ("plugin.extraDevices={/devices}", "extraDevices"),
    ("plugin.library.searchPaths={/usr/../etc}", "searchPaths"),
    ("plugin.containerPaths.card=/sys/card0", "card"),
    ("plugin.containerPaths.render=/dev/dri/..", "render"),
    ("plugin.sharing.wholeDevices={npu0}", "plugin.sharing.wholeDevices"),
    ("plugin.profiles.two.sharing.wholeDevices={npu0}", "plugin.profiles.two.sharing.wholeDevices"),
    ("plugin.sharing.wholeDevices={npu0-s1}", "wholeDevices"),
    ("plugin.mode=both", "mode"),
    ("plugin.mode=dra,guard.enabled=false", "guard.enabled"),
    ("plugin.mode=dra,plugin.sharing.slots=2", "plugin.dra.readClaims"),
    ("plugin.profiles.two.mode=dra,plugin.profiles.two.sharing.slots=2", "plugin.profiles.two"),
    ("plugin.resourceNames.rknpu=npu", "rknpu"),
    ("plugin.resourceNames.rknpu=kubernetes.io/npu", "rknpu"),
    ("plugin.updateStrategy.rollingUpdate.maxSurge=1", "maxSurge"),
    ("plugin.profiles.default.extraDevices={/dev/rga}", "default"),
    ("plugin.profiles.small.nope=1", "nope"),
    ("plugin.profiles.small.library.searchPaths={/opt/npu}", "profiles.small"),
    ("plugin.terminationGracePeriodSeconds=0", "terminationGracePeriodSeconds"),
    ("exporter.image.digest=sha256:1", "digest"),
    ("exporter.collectorDeadlineSeconds=0", "collectorDeadlineSeconds"),
    ("exporter.enabled=false", "exporter.enabled"),
    ("guard.mode=audit", "mode"),
    ("guard.taint=NoExecute", "taint"),
    ("guard.replicas=0", "replicas"),
    ("guard.replicas=many", "replicas"),
    ("guard.missingData=guess", "missingData"),
    ("guard.source=prometheus", "guard.prometheus.url"),
    ("guard.source=files", "source"),
    ("guard.observeVendors={acme}", "observeVendors"),
    ("guard.forgetAfterSeconds=30", "guard.forgetAfterSeconds"),
    ("guard.budget.nodesRatio=0", "nodesRatio"),
    ("guard.budget.domainRatio=2", "domainRatio"),
    ("guard.storm.rearmRatio=0.3", "guard.storm.rearmRatio"),
    ("simulator.speed=0", "speed"),
    ("simulator.busyRatio=90", "busyRatio"),
    ("simulator.boards.nodes.a=RK3588", "nodes"),
    ("quotas[0].namespace=a", "hard"),
    (r"quotas[0].namespace=a,quotas[0].hard.rockchip\.com/npu=1", "rockchip"),
    (r"quotas[0].namespace=a,quotas[0].hard.limits\.rockchip\.com/npu=1", "limits"),
    (r"quotas[0].namespace=a,quotas[0].hard.requests\.rockchip\.com/npu=0.5", "requests"),
    ("quotas[0].namespace=npu-platform,quotas[0].hard.pods=1", "npu-platform"),
    (
        "quotas[0].namespace=a,quotas[0].hard.pods=1,quotas[1].namespace=a,quotas[1].hard.pods=2",
        "a/npu",
    ),
    ("quotas[0].namespace=a,quotas[0].hard.pods=1,quotas[0].members.subjects[0].kind=Team", "kind"),
    ("quotasRequired.contact=it's me", "contact"),
    ("priorityClasses[0].name=npu", "value"),
    ("simulator.boards.default=rk9999", "default"),
    ("kubeletDir=var/lib/kubelet", "kubeletDir"),
    ("kubeletDir=/var/lib/../kubelet", "kubeletDir"),
    ("image.pullPolicy=Sometimes", "pullPolicy"),
    ("image.tag=a b", "tag"),
    ("logging.level=trace", "level"),
    ("monitoring.interval=soon", "interval"),
    ("cleanup.deadlineSeconds=1", "deadlineSeconds"),
    ("revisionHistoryLimit=-1", "revisionHistoryLimit"),
    ("extraObjects[0]=1", "extraObjects"),
    ("viewer.subjects[0].kind=Team", "kind"),
    ("networkPolicies.apiServer.ports={0}", "ports"),
    ("networkPolicies.apiServer.cidrs={here}", "cidrs"),
    ("networkPolicies.ingressFrom[0].cidr=192.0.2.0/28", "ingressFrom"),
    ("ghosts.schedule=often", "schedule"),
    ("commonLabels.a=!", "commonLabels"),
    ("thresholds.preset=rk9999", "preset"),
    ("thresholds.temperatures.coldCelsius=50", "coldCelsius"),
    ("thresholds.temperatures.hotCelsius=hot", "hotCelsius"),
    ("thresholds.temperatures.hotCelsius=200", "hotCelsius"),
    ("thresholds.temperatures.hotCelsius=89", "thresholds.temperatures.hotCelsius"),
    ("thresholds.temperatures.warmCelsius=85", "thresholds.temperatures.warmCelsius"),
    ("thresholds.temperatures.hotLeaveCelsius=69", "thresholds.temperatures.hotLeaveCelsius"),
    ("thresholds.timing.hotHoldSeconds=59", "hotHoldSeconds"),
    ("thresholds.timing.hotHoldMaximumSeconds=100", "hotHoldMaximumSeconds"),
    ("thresholds.timing.lostSeconds=5", "lostSeconds"),
    ("monitoring.enabled=true", "monitoring.skipApiCheck"),
    ("monitoring.rules.alerts.NpuNope.enabled=false", "NpuNope"),
    ("monitoring.rules.alerts.NpuExporterDown.severity=page", "severity"),
    ("monitoring.rules.alerts.NpuExporterDown.for=soon", "for"),
    ("monitoring.rules.alerts.NpuExporterDown.threshold=1", "threshold"),
    ("monitoring.rules.manyNodesHotRatio=30", "manyNodesHotRatio"),
    ("monitoring.rules.fallbackCriticalCelsius=300", "fallbackCriticalCelsius"),
]


@pytest.mark.parametrize("helm", HELM_VERSIONS)
@pytest.mark.parametrize(("setting", "named"), REJECTED)
def test_rejected_naming_the_key(setting: str, named: str, helm: str) -> None:
    """The message names the key that has to change."""
    with pytest.raises(CommandError) as caught:
        # Helm 3.17 does not know this API by itself, which would be the first thing refused.
        chart.render(settings=[setting], helm=helm, apis=["resource.k8s.io/v1"])
    assert named in str(caught.value)


def test_monitors_need_their_api() -> None:
    """Monitors are rendered where the API server knows them, without an override."""
    apis = [f"monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "PrometheusRule")]
    text = chart.render(settings=["monitoring.enabled=true"], apis=apis)
    assert sum(item["kind"] == "PodMonitor" for item in chart.objects(text)) == 3


def test_simulated_boards_may_hold_shortly() -> None:
    """The floor of the hold is for real boards."""
    chart.render(settings=["simulator.enabled=true", "thresholds.timing.hotHoldSeconds=20"])


TEMPERATURES = [
    {},
    *({key: float(value)} for key in ("hotCelsius", "warmCelsius") for value in (65, 70, 77, 79)),
    *({"criticalCelsius": value} for value in (76.0, 86.5, 95.0)),
    *({"hotLeaveCelsius": value} for value in (66.0, 67.5, 78.0)),
    *({"emergencyCelsius": value} for value in (78.0, 88.0, 89.0)),
    {"warmCelsius": 60.0, "hotCelsius": 70.0, "criticalCelsius": 74.5, "emergencyCelsius": 90.0},
    {"warmLeaveCelsius": 58.0, "warmCelsius": 60.0},
    {"criticalLeaveCelsius": 76.0},
]


@pytest.mark.parametrize(
    ("preset", "temperatures"),
    list(itertools.product(["auto", "rk3588", "rk356x"], TEMPERATURES)),
    ids=str,
)
def test_chart_judges_like_the_services(preset: str, temperatures: dict[str, float]) -> None:
    """The chart refuses exactly the temperatures that the services would refuse at start."""
    accepted = True
    try:
        msgspec.convert({"preset": preset, **temperatures}, Settings)
    except msgspec.ValidationError:
        accepted = False
    values = {"thresholds": {"preset": preset, "temperatures": temperatures}}
    if accepted:
        chart.render(values=values)
    else:
        with pytest.raises(CommandError, match=r"thresholds\.temperatures\."):
            chart.render(values=values)
