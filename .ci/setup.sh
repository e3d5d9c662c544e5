# Sourced by the two commands of the README: makes .venv and installs the wanted extras into it.
# Needs Debian (or another system with Python 3.10 or newer that can make virtual environments).

say() { printf '\n== %s\n' "$*"; }

# Debian packages: only where a program is missing, and only where this user may install.
install_debian() {
    local as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo"
    if ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! command -v sudo >/dev/null; }; then
        echo "Please install: $*" >&2
        return 1
    fi
    say "Installing $*"
    $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

make_environment() {  # make_environment EXTRAS
    local python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null; then
        install_debian python3 python3-venv
    fi
    if [ ! -x .venv/bin/pip ]; then
        say "Making a virtual environment in .venv"
        "$python" -m venv .venv 2>/dev/null || { install_debian python3-venv && "$python" -m venv --clear .venv; }
    fi
    # The stamp spares the second start the look at every package.
    local stamp=".venv/stepscope-$1" wanted
    wanted=$(cat pyproject.toml .ci/setup.sh .ci/versions.txt | cksum)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "Installing Stepscope and its '$1' packages (a few minutes the first time)"
        # The versions that the gate was last green with; others only where an index lacks one of them.
        install_packages "$1" -c .ci/versions.txt || { say "Not with these versions: with the newest" && install_packages "$1"; }
        printf '%s' "$wanted" >"$stamp"
    fi
}

# One line for each package: what is downloaded here takes minutes, and a silent gate looks like one that hangs.
install_packages() {  # install_packages EXTRAS [pip arguments]
    .venv/bin/pip install --disable-pip-version-check --progress-bar off --no-compile "${@:2}" -e ".[$1]" |
        sed -u -n -e 's/^Collecting /   looking for /p' -e 's/^ *Downloading /   downloading /p' -e 's/^\(Building\|Installing\) /   \1 /p' || return
    .venv/bin/python -m compileall -qq -j 0 .venv/lib || true  # on all cores; a package may hold a file that is no Python
}

# What the lock file of a folder names, exactly; again only when that file changed.
install_node_packages() {  # install_node_packages FOLDER
    local stamp="$1/node_modules/.stepscope" wanted
    wanted=$(cksum <"$1/package-lock.json")
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "Installing the Node packages of $1"
        npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error && printf '%s' "$wanted" >"$stamp"
    fi
}
