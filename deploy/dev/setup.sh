#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build, run and test Ratchet: checks the Swift toolchain and installs the Debian
# packages that are missing, and those named as arguments. Does nothing, in well under a second, when all is there.
set -euo pipefail

packages=(
    # The C and C++ libraries that the targets link.
    libc6-dev libstdc++-12-dev libhiredis-dev libpq-dev libssl-dev libsimdjson-dev libcurl4-openssl-dev
    # What make run starts, and what starts it.
    redis-server postgresql-15 python3 curl
    # What only the tests use: certificates made on the spot, and the proxy whose configuration is checked.
    openssl nginx
    # What else a caller needs: the peers of make bench.
    "$@"
)
# Daemons that some of these packages would start: Ratchet uses the programs, never the system's own instances.
services=(redis-server postgresql nginx webdis)
guard=/usr/sbin/policy-rc.d
guard_mark='made by deploy/dev/setup.sh of Ratchet'

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

check_swift() {
    command -v swift >/dev/null ||
        fail 'swift is missing: install a Swift 6.2 (or newer) toolchain from swift.org/install/linux and put its bin folder on PATH'
    local version
    version=$(swift --version 2>/dev/null </dev/null) || fail "swift does not start: run 'swift --version' to see why"
    [[ $version =~ Swift\ version\ ([0-9]+)\.([0-9]+) ]] || fail "cannot read the version of swift: $version"
    local major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}
    ((major > 6 || (major == 6 && minor >= 2))) ||
        fail "Swift $major.$minor is too old: Ratchet needs 6.2 or newer ($(command -v swift))"
}

# Prints the packages of the list that are not installed.
missing_packages() {
    local installed
    # dpkg-query answers 1 when it knows nothing of one of them; its list of the others is still right.
    # shellcheck disable=SC2016
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
    local package
    for package in "${packages[@]}"; do
        [[ $'\n'$installed$'\n' == *$'\n'"installed $package"$'\n'* ]] || printf '%s\n' "$package"
    done
}

# Runs a command as root.
root=()
find_root() {
    ((EUID != 0)) || return 0
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
        root=(sudo)
    else
        fail "missing Debian packages: ${missing[*]}. Run 'make setup' as root once, or install them with apt-get"
    fi
}

# invoke-rc.d asks this file whether a package may start its daemon; 101 is 'no'. One that is already there is kept.
forbid_starts() {
    if [[ ! -e $guard ]] || grep -q "$guard_mark" "$guard"; then
        trap '"${root[@]}" rm -f "$guard"' EXIT
        printf '#!/bin/sh\n# %s: packages installed now start no daemon.\nexit 101\n' "$guard_mark" |
            "${root[@]}" tee "$guard" >/dev/null
        "${root[@]}" chmod 755 "$guard"
    fi
}

check_swift
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this is not Debian (no dpkg, no apt-get): Ratchet is built and run on Debian 12; it needs ${packages[*]}"
mapfile -t missing < <(missing_packages)
((${#missing[@]} > 0)) || exit 0

release=$(. /etc/os-release && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-unknown}")
[[ $release == 'debian 12' ]] ||
    fail "missing packages: ${missing[*]}. This is $release, not Debian 12: install what stands for them by hand"
find_root
say "installing ${missing[*]}"
forbid_starts
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update </dev/null || fail 'apt-get update failed (is there a network?); see above'
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null ||
    fail "apt-get could not install ${missing[*]}; see above"

# Without this the daemons of the packages just installed would start with the next boot.
if command -v systemctl >/dev/null; then
    for service in "${services[@]}"; do
        for package in "${missing[@]}"; do
            if [[ $package == "$service"* ]]; then
                "${root[@]}" systemctl disable "$service.service" >/dev/null 2>&1 ||
                    say "note: could not keep $service from starting with the machine"
            fi
        done
    done
fi
mapfile -t missing < <(missing_packages)
((${#missing[@]} == 0)) || fail "still missing after the installation: ${missing[*]}"
say 'done'
