# To be sourced: turns of a plain program with and without an exported file, the side that begins changing, until time is over.
#   plain_turns END_SECONDS OUTPUT_FOLDER FUNCTION     FUNCTION TURN SIDES: prints TURN SIDE COLLECTIVE SIZE MICROSECONDS lines
# Leaves plain.txt and gains.txt (scripts/plain_gains.py). Whole turns alone count; PAIRS bounds them (12).
plain_turns() {
  local end=$1 folder=$2 one=$3 turn begin sides result=0 longest=0
  : >"$folder/plain.txt"
  for turn in $(seq "${PAIRS:-12}"); do
    begin=$SECONDS
    [ $((begin + longest)) -lt "$end" ] || break
    sides="default loaded"
    [ $((turn % 2)) = 1 ] || sides="loaded default"
    "$one" "$turn" "$sides" >"$folder/turn" || result=1
    cat "$folder/turn" >>"$folder/plain.txt"
    [ $((SECONDS - begin)) -le $longest ] || longest=$((SECONDS - begin))
  done
  rm -f "$folder/turn"
  python3 scripts/plain_gains.py "$folder/plain.txt" >"$folder/gains.txt" || result=1
  return $result
}
