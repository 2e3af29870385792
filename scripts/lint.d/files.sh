# shellcheck shell=bash
# Which files are C++ and which are shell; sourced by scripts/lint and scripts/format, from the root.

# shellcheck disable=SC2034 # read by those who source this
shfmt_style=(-i 2 -ci)

tracked() { git ls-files --cached --others --exclude-standard -z "$@"; }

# Files that are there: a deleted one is listed until it is committed.
existing() {
  local file
  while IFS= read -r -d '' file; do
    if [ -f "$file" ] && [ ! -L "$file" ]; then printf '%s\0' "$file"; fi
  done
}

cpp_files() { tracked '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.ipp' | existing; }

shell_files() {
  tracked | existing | while IFS= read -r -d '' file; do
    case $file in
      *.sh | *.bats) printf '%s\0' "$file" ;;
      *) # programs have no suffix and say by their first line what they are
        if [[ ${file##*/} != *.* ]] && head -n 1 "$file" | grep -qaE '^#!.*\b(ba)?sh\b'; then printf '%s\0' "$file"; fi ;;
    esac
  done
}
