"""The version of the platform, and the source revision where a build recorded one."""

import os

VERSION = "0.1.0.dev0"
REVISION = os.environ.get("NPU_PLATFORM_REVISION", "unknown")
