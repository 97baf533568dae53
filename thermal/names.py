"""What the guard writes on a Node, and what a person may write for it."""

from typing import Final

PREFIX: Final = "thermal.npu-platform.io/"
TAINT_HOT: Final = f"{PREFIX}hot"
TAINT_CRITICAL: Final = f"{PREFIX}critical"
OWN_TAINTS: Final = frozenset({TAINT_HOT, TAINT_CRITICAL})

CONDITION: Final = "NPUOverheated"

#: Ownership records: what the guard decided and applied, and which labels it set to which value.
ANNOTATION_STATE: Final = f"{PREFIX}state"
ANNOTATION_LABELS: Final = f"{PREFIX}labels"
OWN_ANNOTATIONS: Final = frozenset({ANNOTATION_STATE, ANNOTATION_LABELS})

#: Label or annotation a person sets: ``disabled`` or ``observe``.
OVERRIDE: Final = f"{PREFIX}guard"

#: Annotation a person sets: a time (RFC 3339) until which the taints of the node stay as they are.
HOLD_UNTIL: Final = f"{PREFIX}hold-until"

#: Inventory labels the guard may set; the admission policy lists the same.
INVENTORY_LABELS: Final = frozenset(
    {
        "rockchip.com/npu",
        "rockchip.com/npu-model",
        "rockchip.com/npu-cores",
        "rockchip.com/npu-driver",
        "rockchip.com/npu-driver-version",
        "huawei.com/npu",
        "huawei.com/npu-model",
        "huawei.com/npu-count",
        "huawei.com/npu-driver-version",
    }
)

COMPONENT: Final = "npu-platform.io/thermal-guard"
