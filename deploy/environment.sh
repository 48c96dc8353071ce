#!/bin/sh
# environment.sh [--build] DIRECTORY PYTHON ARGUMENTS...
#
# Create a virtual environment and install into it with uv, or with pip where uv is not installed. ARGUMENTS are those of
# `pip install`; --build then installs this project with the packages of the environment. The output of a step is shown
# if it fails. An environment that is not complete is removed.
set -eu

build=
if [ "$1" = --build ]; then
    build=yes
    shift
fi
directory=$1 python=$2
shift 2

if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    echo "Python 3.11, 3.12 or 3.13 is required${python:+, and $python is not}; name one: make PYTHON=/path/to/python3.12 ..." >&2
    exit 1
fi

log=$(mktemp)
ticker=
stop_ticker() {
    if [ -n "$ticker" ]; then kill "$ticker" 2>/dev/null || true; fi
    ticker=
}
abandon() {
    stop_ticker
    rm -rf "$directory" "$log"
}
trap 'trap "" INT TERM; printf "\nInterrupted; %s is removed\n" "$directory" >&2; abandon; exit 130' INT TERM

# Show that a step is alive: the seconds on a terminal, elsewhere a dot every ten seconds.
tick() {
    seconds=0
    while sleep 1; do
        seconds=$((seconds + 1))
        if [ -t 1 ]; then
            printf '\r%s  %s s' "$1" "$seconds"
        elif [ $((seconds % 10)) = 0 ]; then
            printf .
        fi
    done
}

# step LABEL COMMAND...
step() {
    label=$1
    shift
    printf '%s' "$label"
    begin=$(date +%s)
    tick "$label" &
    ticker=$!
    # In a subshell, so that the message of an interrupt is not redirected too.
    if ("$@") >"$log" 2>&1; then
        stop_ticker
        if [ -t 1 ]; then printf '\r%s' "$label"; fi
        printf '  %s s\n' $(($(date +%s) - begin))
    else
        status=$?
        stop_ticker
        printf '\n'
        cat "$log" >&2
        abandon
        exit "$status"
    fi
}

if command -v uv >/dev/null; then
    installer=uv
    create() { uv venv --seed --python "$python" "$directory"; }
    install() { uv pip install --python "$directory/bin/python" "$@"; }
else
    installer=pip
    create() { "$python" -m venv "$directory"; }
    install() { "$directory/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@"; }
fi

rm -rf "$directory"
step "Creating $directory with $("$python" --version)" create
step "Installing with $installer (TensorFlow and Beam are large)" install "$@"
if [ -n "$build" ]; then
    step "Building beambert" install --no-deps --no-build-isolation -e .
fi
rm -f "$log"
