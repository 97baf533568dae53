"""What an autoscaled service needs beyond the platform, added to the demonstration.

That is KEDA, and a Prometheus that finds the service's Pods.
"""

from ci import discovery, keda_install
from ci.cluster import Cluster
from ci.command import CommandError
from ci.demo.report import Report
from ci.demo.story import NAMESPACE, RELEASE
from ci.kube import Kube, until
from ci.prometheus import Prometheus

_AGAIN = "`make demo`, without KUBECONFIG,"


class DemoError(RuntimeError):
    """The demonstration is not there, or not whole; the message says what to do."""


def add(cluster: Cluster, report: Report) -> None:
    """Install KEDA and let Prometheus follow the Pods; doing it again changes nothing.

    Raises DemoError where the demonstration does not run, ``ci.kube.WaitError`` where KEDA does not
    come up, ``ci.gobuild.BuildError`` where it cannot be built.
    """
    kube = running(cluster)
    with report.step("KEDA is built, imported and answers") as step:
        keda_install.install(cluster, kube)
        pods = kube.items("pods", "-n", keda_install.NAMESPACE)
        step.found = ", ".join(sorted(str(pod["metadata"]["name"]) for pod in pods))
    with report.step("Prometheus follows the Pods of services") as step:
        discovery.start(cluster)
        prometheus = Prometheus.beside(cluster)
        # It starts, and scrapes nothing, where the machine has no inotify instance left for it.
        until(
            prometheus.healthy_targets,
            seconds=30,
            what=f"a target that Prometheus scrapes (log: {prometheus.log})",
        )
        step.found = f'platform, and Pods with {discovery.ANNOTATION}: "true"'


def running(cluster: Cluster) -> Kube:
    """Return the way to a demonstration that runs; raises DemoError saying what is missing."""
    if not cluster.exists:
        message = f"there is no cluster {cluster.name}: {_AGAIN} makes it"
        raise DemoError(message)
    kube = Kube(kubeconfig=cluster.kubeconfig)
    try:
        kube.raw("/readyz")
    except CommandError as error:
        message = f"cluster {cluster.name} does not answer: {_AGAIN} brings it up again\n{error}"
        raise DemoError(message) from error
    if RELEASE not in kube.helm("list", f"--namespace={NAMESPACE}", "--short").split():
        message = f"the platform is not on cluster {cluster.name}: {_AGAIN} installs it"
        raise DemoError(message)
    if not Prometheus.beside(cluster).answers():
        message = f"no Prometheus beside cluster {cluster.name}: {_AGAIN} starts it"
        raise DemoError(message)
    return kube
