#!/bin/sh
# end_marked_ranks.sh NAME: kills every process that was started in the environment NAME, wherever
# a launcher has put it; the container's holder stays.

# While a process changes its program the kernel shows no environment of it: it is looked at again.
# The reader opens the file itself: what the shell opened would be gone when another program reads it.
is_marked() {
  # Kernel threads, processes that have ended and other people's show no program.
  [ -e "$1/exe" ] || return 1
  looks=0
  while :; do
    text=$(cat -v "$1/environ" 2>/dev/null)
    case "^@$text" in *"^@DYNAMICCL_ENVIRONMENT=$2^@"*) return 0 ;; esac
    [ -z "$text" ] && [ -e "$1/exe" ] && [ $looks -lt 20 ] || return 1
    looks=$((looks + 1))
  done
}

# A process that is made after the list was is met in the next round; the one that made it may be
# gone by then: none is left when two rounds in a row meet none.
none=0
for round in 1 2 3 4 5 6 7 8 9 10; do
  none=$((none + 1))
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [ "$pid" = $$ ] && continue
    is_marked "$folder" "$1" || continue
    case "$(2>/dev/null <"$folder/cmdline" tr '\0' ' ')" in
      *"sleep infinity "*) ;;
      *) kill -KILL "$pid" 2>/dev/null && none=0 ;;
    esac
  done
  [ $none -lt 2 ] || break
done
exit 0
