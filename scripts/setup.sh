#!/usr/bin/env bash
# Makes the virtual environment and installs the package, the sample handlers and the tools, at the versions of
# constraints.txt. A fresh Debian has Python without its venv module, without libcurl, which mongod needs, and without
# Chromium, which the tests of the dashboard drive: they are installed when this runs as root, and named otherwise.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}

missing=()
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "error: $python is older than Python 3.11; run 'make PYTHON=/path/to/python3.11 ...'" >&2
  exit 1
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ "$(uname -s)" = Linux ] && command -v ldconfig >/dev/null; then
  ldconfig -p | grep -q 'libcurl\.so\.4' || missing+=(libcurl4)
  command -v chromium >/dev/null || [ "$(id -u)" != 0 ] || missing+=(chromium)
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"
  else
    echo "error: these packages are missing: ${missing[*]}; run 'sudo apt-get install ${missing[*]}' and repeat" >&2
    exit 1
  fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
pip=("$venv/bin/python" -m pip install --quiet --constraint constraints.txt)
"${pip[@]}" --requirement requirements-dev.txt
"${pip[@]}" --editable '.[crypto,embedded,kafka,management,motor,otel,testing,uvloop]'
"${pip[@]}" --editable handlers
