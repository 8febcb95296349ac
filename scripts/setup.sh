# Sourced by quickstart.sh and test.sh: makes .venv where there is none and installs condvne with the named extras.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10 python; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "No Python of version 3.10 or newer with venv was found; install one, or name it: PYTHON=/path/to/python." >&2
  return 1
}

set_up() { # set_up EXTRAS, e.g. quickstart,dev
  local python stamp
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    echo "Making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  # Installing takes minutes: it is done again only when pyproject.toml or the extras have changed.
  stamp=".venv/.installed-$1-$(.venv/bin/python -c 'import hashlib, pathlib; print(hashlib.sha256(pathlib.Path("pyproject.toml").read_bytes()).hexdigest()[:16])')"
  if [ ! -e "$stamp" ]; then
    echo "Installing condvne[$1] and what it needs into .venv (some minutes the first time)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$1]"
    touch "$stamp"
  fi
}
