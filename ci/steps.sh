#!/bin/bash
# Run make targets one after the other and say how long each took; stop at the first that fails.
# usage: steps.sh TARGET…
set -uo pipefail
for target in "$@"; do
  echo "=== make $target"
  start=$SECONDS
  if ! "${MAKE:-make}" --no-print-directory "$target"; then
    echo "=== make $target FAILED after $((SECONDS - start)) s" >&2
    exit 1
  fi
  echo "=== make $target passed after $((SECONDS - start)) s"
done
