#!/bin/bash
# Create the Python environment VENV from the hashed lock LOCK.
# usage: bootstrap.sh VENV LOCK
# Works on a bare Debian: python3 may come without the venv module, which is then installed by apt.
set -euo pipefail
venv=$1 lock=$2

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "bootstrap: Python 3.11 or newer is needed, found $(python3 -V)" >&2
  exit 1
fi
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "bootstrap: the Python module 'venv' is missing; install it (Debian: apt-get install python3-venv)" >&2
    exit 1
  fi
  echo "bootstrap: installing python3-venv"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends --no-upgrade python3-venv ca-certificates >/dev/null
fi

# Built beside its final place and renamed, so that an interrupted run leaves no half environment.
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
[ -x "$venv/bin/python" ] && exit 0
echo "bootstrap: creating the Python environment (once per lock file)"
rm -rf "$venv" "$venv.part"
python3 -m venv "$venv.part"
"$venv.part/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$lock"
# Scripts name their interpreter by absolute path: make them say the final one.
grep -rlIF "$venv.part" "$venv.part/bin" "$venv.part/pyvenv.cfg" | xargs -r sed -i "s#$venv.part#$venv#g"
mv "$venv.part" "$venv"
