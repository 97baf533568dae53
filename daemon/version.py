"""The version of the platform and its source revision, where a build recorded them.

An image carries the version it was built as. The one here is that of the chart in the checkout.
"""

import os

VERSION = os.environ.get("NPU_PLATFORM_VERSION") or "0.1.0-dev"
REVISION = os.environ.get("NPU_PLATFORM_REVISION", "unknown")
