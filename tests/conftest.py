"""Settings of the whole test suite."""

import os

from hypothesis import settings

# Examples are judged by their result; how long one takes on a busy machine says nothing.
# The gate tries the same ones each time, so that its verdict is one on the change; ``make laws``
# looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
