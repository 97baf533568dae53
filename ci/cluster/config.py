"""Configuration files of a cluster's programs, as text. Pure."""

import json
from dataclasses import dataclass
from pathlib import Path

from ci import kubernetes
from ci.cluster import pause
from ci.cluster.plan import API_PORT, NodePlan, Plan

# v1beta4 came with 1.31, together with smaller keys that are generated at once.
_KUBEADM_V1BETA4_MINOR = 31
# The kubelet refuses cgroup v1 by default since 1.35 and knows the switch since 1.31.
_FAIL_CGROUP_V1_MINOR = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a container runtime has to know about this machine.

    ``restrict_oom_score_adj``: without CAP_SYS_RESOURCE no process may make itself less likely
    to be killed, and every sandbox would die of it. ``snapshotter``: overlayfs does not stack
    on itself. ``cdi``: containerd has CDI since 1.7 and on by default since 2.0.
    """

    cni_plugins: Path
    restrict_oom_score_adj: bool
    snapshotter: str
    cdi: bool


def kubeadm(plan: Plan, version: str, pki: Path, *, node: str) -> str:
    """Return kubeadm's configuration; it only makes certificates and kubeconfigs here."""
    modern = kubernetes.minor(version) >= _KUBEADM_V1BETA4_MINOR
    api = f"kubeadm.k8s.io/v1beta{4 if modern else 3}"
    init = {
        "apiVersion": api,
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": str(plan.api_address), "bindPort": API_PORT},
        "nodeRegistration": {"name": node, "criSocket": "unix:///run/containerd/containerd.sock"},
    }
    cluster = {
        "apiVersion": api,
        "kind": "ClusterConfiguration",
        "clusterName": plan.name,
        "kubernetesVersion": f"v{version}",
        "certificatesDir": str(pki),
        "controlPlaneEndpoint": f"{plan.api_address}:{API_PORT}",
        "networking": {"serviceSubnet": str(plan.services)},
    }
    if modern:
        cluster["encryptionAlgorithm"] = "ECDSA-P256"
    # JSON is YAML; documents are separated as YAML wants it.
    return f"{json.dumps(init, indent=1)}\n---\n{json.dumps(cluster, indent=1)}\n"


def kubelet(node: NodePlan, version: str, client_ca: Path) -> str:
    """Return the kubelet's configuration."""
    settings: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(client_ca)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # The disk is the machine's and may be nearly full; that is no reason to evict.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusReportFrequency": "10s",
        "nodeStatusUpdateFrequency": "4s",
        "resolvConf": "",
        "shutdownGracePeriod": "0s",
        "syncFrequency": "10s",
        # The default lies outside the node's own directories.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }
    if kubernetes.minor(version) >= _FAIL_CGROUP_V1_MINOR:
        settings["failCgroupV1"] = False
    return json.dumps(settings, indent=1) + "\n"


def containerd(runtime: Runtime) -> str:
    """Return containerd's configuration (file version 2, understood by 1.6 to 2.x)."""
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    cdi = '  enable_cdi = true\n  cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]\n' if runtime.cdi else ""
    return f"""\
version = 2
{cri}]
  sandbox_image = "{pause.IMAGE}"
  # A profile loaded into the kernel would outlive the cluster.
  disable_apparmor = true
  restrict_oom_score_adj = {str(runtime.restrict_oom_score_adj).lower()}
{cdi}\
{cri}.containerd]
  snapshotter = "{runtime.snapshotter}"
  default_runtime_name = "runc"
{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{cri}.cni]
  bin_dir = "{runtime.cni_plugins}"
  conf_dir = "/etc/cni/net.d"
"""


def pod_network(node: NodePlan) -> str:
    """Return the CNI configuration: a bridge inside the node, no masquerading."""
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": str(node.pod_network)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        },
        indent=1,
    )


def etcd(data: Path) -> list[str]:
    """Return etcd's arguments. Its data need not survive the machine's power."""
    return [
        f"--data-dir={data}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
    ]


def api_server(plan: Plan, pki: Path) -> list[str]:
    """Return the API server's arguments, as kubeadm would choose them."""
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={plan.api_address}",
        f"--bind-address={plan.api_address}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={plan.services}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        # Aggregated API servers and webhooks are reached at their Pods: the control plane is
        # outside the nodes, where Service addresses mean nothing.
        "--enable-aggregator-routing=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
    ]


def controller_manager(plan: Plan, pki: Path, kubeconfig: Path) -> list[str]:
    """Return the controller manager's arguments. A dead node is noticed after 20 s."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--cluster-name={plan.name}",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--leader-elect=false",
        "--node-monitor-grace-period=20s",
        "--use-service-account-credentials=true",
    ]


def scheduler(kubeconfig: Path) -> list[str]:
    """Return the scheduler's arguments."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
    ]


def kube_proxy(plan: Plan, node: NodePlan, kubeconfig: Path) -> list[str]:
    """Return kube-proxy's arguments. Connection tracking limits are the machine's: not touched."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--cluster-cidr={plan.network}",
        f"--hostname-override={node.name}",
        "--proxy-mode=iptables",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]


# kubeadm binds its two groups to roles with its super-admin; the second binding is needed for
# `kubectl logs` and `exec` since 1.37.
BINDINGS = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": role,
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}
                ],
            }
            for name, role, kind, subject in (
                (
                    "kubeadm:cluster-admins",
                    "cluster-admin",
                    "Group",
                    "kubeadm:cluster-admins",
                ),
                (
                    "kubeadm:apiserver-kubelet-client",
                    "system:kubelet-api-admin",
                    "User",
                    "kube-apiserver-kubelet-client",
                ),
            )
        ],
    }
)
