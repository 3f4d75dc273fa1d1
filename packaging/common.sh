# shellcheck shell=bash
# Sourced by the scripts that build into build/: tests/run.sh and examples/quickstart.sh.

# need PACKAGE...: makes sure that the packages are there, on Debian and Ubuntu; elsewhere it only says what is needed.
# Without the right to install, it prints the line to run and ends the script.
need() {
  local package missing=() sudo=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "Not a Debian system; these must be installed (Debian's names): $*"
    return
  fi
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if ((EUID)); then
    if ! sudo -n true 2>/dev/null; then
      echo "Missing packages. Run this, then start again:"
      echo "  sudo apt-get update && sudo ${install[*]}"
      exit 1
    fi
    sudo=(sudo -n)
  fi
  echo "Installing: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
}

# configure FEATURE...: sets up build/ with these features on, or switches them on there.
configure() {
  local feature options=()
  for feature in "$@"; do
    grep -qs "^$feature = enabled$" build/meson-private/cmd_line.txt || options+=("-D$feature=enabled")
  done
  if [[ ! -f build/build.ninja ]]; then
    meson setup build "${options[@]}"
  elif ((${#options[@]})); then
    meson configure build "${options[@]}"
  fi
}
