"""Settings of the whole test suite."""

from hypothesis import settings

# Examples are judged by their result; how long one takes on a busy machine says nothing.
settings.register_profile("npu-platform", deadline=None)
settings.load_profile("npu-platform")
