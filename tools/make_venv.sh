#!/bin/sh
# Make .venv with all that the Makefile's targets need, or say what is missing.
set -eu

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

python=$(find_python)
[ -n "$python" ] || fail \
    "No Python 3.11 or newer found${PYTHON:+ in PYTHON=$PYTHON}." \
    "Install one, or name it: make PYTHON=/path/to/python3.12"

if ! new_enough .venv/bin/python; then
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || fail \
        "$python cannot make virtual environments: its venv module is missing." \
        "On Debian and Ubuntu:  apt-get install python3-venv" \
        "or name another one:   make PYTHON=/path/to/python3.12"
    echo ".venv: made with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"
}

pip install --upgrade 'pip>=25.1'  # the first that knows --group
pip install --group dev --editable .

# The drivers are for the servers alone: SQLite is tested without them.
pip install --group postgresql ||
    echo "postgresql: no driver (psycopg); its tests will be skipped" >&2
pip install --group mariadb >.venv/mysqlclient.log 2>&1 ||
    echo "mariadb: no driver; its tests will be skipped." \
        "mysqlclient is compiled and needs, on Debian: apt-get install" \
        "gcc python3-dev libmariadb-dev pkg-config (log: .venv/mysqlclient.log)" >&2

touch .venv/.ready
