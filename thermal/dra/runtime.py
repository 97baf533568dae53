"""Which container runtimes hand devices of claims over."""

import re
from typing import Final

#: Minor version of containerd 1 that has CDI (behind ``enable_cdi``, which nobody outside can see).
_FIRST_WITH_CDI: Final = 7


def knows_cdi(container_runtime: str) -> bool:
    """Tell whether a runtime, as a Node names it, can give a container a device by CDI.

    Older ones start the container all the same, without the device and without an error. What is
    not known may know it.
    """
    found = re.match(r"containerd://v?1\.(\d{1,3})\b", container_runtime, re.ASCII)
    return found is None or int(found[1]) >= _FIRST_WITH_CDI
