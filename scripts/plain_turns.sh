# To be sourced: turns of a plain program with and without an exported file, the side that begins changing, until time is over.
#   plain_turns END_SECONDS OUTPUT_FOLDER FUNCTION     FUNCTION TURN SIDES: prints TURN SIDE COLLECTIVE SIZE MICROSECONDS lines
# Leaves plain.txt and gains.txt (scripts/plain_gains.py). Whole turns that no launch failed in alone count; PAIRS bounds them (12).
#   turn_of FILE TURN SIDES LAUNCH COLLECTIVE...       a turn; the side "loaded" has FILE's variables; LAUNCH COLLECTIVE prints lines of
#                                                      SIZE MICROSECONDS
turn_of() {
  local file=$1 turn=$2 sides=$3 launch=$4 collective side code=0
  shift 4
  for collective in "$@"; do
    for side in $sides; do
      # shellcheck source=/dev/null
      (if [ "$side" = loaded ]; then set -a; . "$file"; fi; "$launch" "$collective") | sed "s/^/$turn $side $collective /" || code=1
    done
  done
  return $code
}
plain_turns() {
  local end=$1 folder=$2 one=$3 turn begin sides result=0 longest=0
  : >"$folder/plain.txt"
  for turn in $(seq "${PAIRS:-12}"); do
    begin=$SECONDS
    [ $((begin + longest)) -lt "$end" ] || break
    sides="default loaded"
    [ $((turn % 2)) = 1 ] || sides="loaded default"
    if "$one" "$turn" "$sides" >"$folder/turn"; then
      cat "$folder/turn" >>"$folder/plain.txt"
    else
      echo "turn $turn: a launch failed, the turn does not count" >&2
      result=1
    fi
    [ $((SECONDS - begin)) -le $longest ] || longest=$((SECONDS - begin))
  done
  rm -f "$folder/turn"
  python3 scripts/plain_gains.py "$folder/plain.txt" >"$folder/gains.txt" || result=1
  return $result
}
