#!/bin/sh
# Set this checkout up (only what is missing), then run a command in it:
#   tools/env.sh [COMMAND [ARGUMENT ...]]
# PYTHON chooses the interpreter: PYTHON=python3.12 tools/env.sh
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

stop() {
    echo "set-up stopped: $1" >&2
    exit 1
}

supported() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" >/dev/null 2>&1 ||
        stop "PYTHON=$PYTHON is not a command here. Name an installed Python 3.10 to 3.13, for example PYTHON=python3.12."
    supported "$PYTHON" ||
        stop "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 | head -n 1), and laimr_ros needs Python 3.10 to 3.13. Name one, for example PYTHON=python3.12."
    LAIMR_PYTHON_CHOSEN=1
    export LAIMR_PYTHON_CHOSEN
    python=$PYTHON
else
    unset LAIMR_PYTHON_CHOSEN
    python=
    for candidate in python3 python3.12 python3.11 python3.13 python3.10; do
        if command -v "$candidate" >/dev/null 2>&1 && supported "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] ||
        stop "no Python 3.10 to 3.13 found. Install one (on Debian and Ubuntu: sudo apt install python3 python3-venv python3-dev), or name it: PYTHON=/path/to/python3.12 make setup."
fi

exec "$python" "$root/tools/environment.py" "$@"
