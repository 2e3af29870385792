# shellcheck shell=bash disable=SC2154 # run comes from scripts/quickstart
# The stages of scripts/quickstart. Each is announced with its command, timed and logged; when it is done, it gets a stamp.
# The stamps in $run/stages hold the seconds and the command. A stage reruns if its command has changed, if the configuration is newer
# than the stamp, or if an earlier stage was rerun.

fail() { # fail CODE SENTENCE
  echo "quickstart: $2" >&2
  exit "$1"
}

planned=() number=0 ran=0 interrupted=0 status=0 removed=''

plan() { planned=("$@"); } # plan "NAME TYPICAL_SECONDS"…: on two cores; the time left is estimated from it

leaves() { removed=$1; } # the next stage makes this folder; remains of an interrupted attempt are removed first

time_left() { # typical seconds from stage $number on, in words
  local seconds=0 entry
  for entry in "${planned[@]:$((number - 1))}"; do seconds=$((seconds + ${entry#* })); done
  if ((seconds < 90)); then echo "$seconds s"; else echo "$(((seconds + 30) / 60)) min"; fi
}

announce() { # announce NAME PURPOSE COMMAND…
  number=$((number + 1))
  [ "${planned[number - 1]% *}" = "$1" ] || fail 70 "stage $1 is not number $number of the plan"
  printf '\n[%d/%d] %s: %s (about %s to the end)\n' "$number" "${#planned[@]}" "$1" "$2" "$(time_left)"
}

show_command() {
  printf '$'
  printf ' %q' "$@"
  printf '\n'
}

# timed NAME SECONDS_BEFORE COMMAND…: runs the command, with its messages on the terminal and in the log. Leaves its exit code in
# `status`, and the seconds, interrupted attempts included, in $run/stages/NAME.spent. The command has its own process group: a
# signal that ends this script is passed to the whole group, so that the command can stop in order (train saves a checkpoint).
timed() {
  local name=$1 before=$2 begin=$EPOCHREALTIME child
  shift 2
  rm -f "$run/logs/$name.exit"
  set -m
  logged "$name" "$@" &
  child=$!
  set +m
  # shellcheck disable=SC2064 # the child of now
  trap "interrupted=1; kill -TERM -- -$child 2>/dev/null" INT TERM HUP
  status=0
  wait "$child" || status=$?
  while kill -0 "$child" 2>/dev/null; do # `wait` returns early when a signal was trapped
    status=0
    wait "$child" || status=$?
  done
  trap - INT TERM HUP
  local code=''
  if [ -s "$run/logs/$name.exit" ]; then read -r code _ <"$run/logs/$name.exit"; fi # launchers lose exit codes
  if [[ $code =~ ^[0-9]{1,3}$ ]]; then status=$code; fi                             # in arithmetic, bash would run commands in any other text
  LC_ALL=C awk -v before="$before" -v begin="${begin/,/.}" -v now="${EPOCHREALTIME/,/.}" \
    'BEGIN { printf "%.1f\n", before + now - begin }' >"$run/stages/$name.spent"
}

check() { # check NAME: ends the script unless the stage just run succeeded and nobody asked to stop
  if ((interrupted)); then fail 75 "interrupted in $1; run scripts/quickstart again to resume"; fi
  if ((status == 75)); then fail 75 "$1 saved a checkpoint and stopped; run scripts/quickstart again to resume"; fi
  local hint=''
  if ((status == 2)); then hint='; if the text or the settings have changed, scripts/quickstart --fresh starts over'; fi
  ((status == 0)) || fail "$status" "$1 failed (code $status); its messages are in $run/logs/$1.log$hint"
}

logged() { # logged NAME COMMAND…
  local log=$run/logs/$1.log
  export ARGOSY_EXIT_FILE=$PWD/$run/logs/$1.exit
  shift
  trap : INT TERM HUP # the whole group gets the signal: wait until the command has ended
  "$@" </dev/null 2>&1 | keep "$log"
}

keep() { # … | keep FILE: copies to the terminal and the file, up to the last line of a command that is being stopped
  trap '' INT TERM HUP
  exec tee "$1"
}

always() { # always NAME PURPOSE COMMAND…: a step that runs each time; it is quick if there is nothing to do
  announce "$1" "$2"
  local name=$1 before=0
  shift 2
  if [ -s "$run/stages/$name.spent" ]; then before=$(<"$run/stages/$name.spent"); fi
  show_command "$@"
  timed "$name" "$before" "$@"
  check "$name"
}

stage() { # stage NAME PURPOSE COMMAND…
  announce "$1" "$2"
  local name=$1 stamp=$run/stages/$1.done before=0 command
  shift 2
  command=$(show_command "$@")
  if ! ((ran)) && [ -e "$stamp" ] && [ "$(<"$stamp")" = "$command" ] && ! [ "$config" -nt "$stamp" ]; then
    echo "already done, in $(<"$run/stages/$name.spent") s"
  else
    if [ -s "$run/stages/$name.spent" ] && ! [ -e "$stamp" ]; then before=$(<"$run/stages/$name.spent"); fi
    rm -f "$stamp"
    if [ -n "$removed" ]; then rm -rf "$removed"; fi
    echo "$command"
    timed "$name" "$before" "$@"
    if ((status == 0)); then echo "$command" >"$stamp.partial" && mv "$stamp.partial" "$stamp"; fi
    check "$name"
    ran=1
  fi
  removed=''
}

about() { # about KEY: of the fetched text
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$run/text/counts.json" "$1"
}

language() { # language 0|1: of the fetched text
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["languages"][int(sys.argv[2])])' "$run/text/counts.json" "$1"
}

newest_checkpoints() { # newest_checkpoints RUN_DIR COUNT: committed ones, oldest first, one per step
  local folder
  for folder in "$1"/export/[0-9]* "$1"/checkpoints/[0-9]*; do
    if [ -d "$folder" ]; then echo "${folder##*/} $folder"; fi
  done | sort -n -s -k 1,1 -u | tail -n "$2" | cut -d ' ' -f 2-
}
