"""A kubelet as far as device plugins see one: real gRPC on real Unix sockets.

It behaves like the device manager of Kubernetes, and on request like old or unlucky ones. What it
does is the subject of its own tests, and of the contract suite that real kubelets pass as well::

    from tests.component.fake_kubelet import FakeKubelet

    kubelet.start()                                # deletes sockets, serves kubelet.sock
    kubelet.wait_for_devices(resource, {"npu0": "Healthy"})
    answer = kubelet.pods.admit("pod", resource)   # a Pod that holds a device from now on
    kubelet.restart()                              # nothing registered survives, Pods do
    kubelet.pods.restart_container("pod") == answer     # from the checkpoint, without the plugin

``tests.component.fake_kubelet.fixtures`` has the pytest fixtures.
"""

from tests.component.fake_kubelet.admission import AdmissionError
from tests.component.fake_kubelet.kubelet import AUTHORITIES, Endpoint, FakeKubelet
from tests.component.fake_kubelet.pod_resources import Held, RateLimit, list_response

__all__ = [
    "AUTHORITIES",
    "AdmissionError",
    "Endpoint",
    "FakeKubelet",
    "Held",
    "RateLimit",
    "list_response",
]
