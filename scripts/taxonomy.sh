#!/bin/sh
# Prints profiles/published/taxonomy.txt as Markdown: what the surveys name and what of it runs here.
set -eu
cd "$(dirname "$0")/.."
awk -F' *[|] *' '
BEGIN {
  print "# Taxonomy: what the surveys name, and what of it runs here\n"
  print "Made by `scripts/taxonomy.sh` from `profiles/published/taxonomy.txt`. What the surveys publish in"
  print "figures is `dynamiccl query published`. \"Named only\": the surveys give no figure. In the matrices at the"
  print "end, as published: hot = much to tune, warm = within constraints, cold = little, none = nothing is there; - = not stated."
}
/^#/ || /^$/ { next }
/^\[matrix: / { print "\n## " substr($0, 10, length($0) - 10) "\n"; matrix = 1; row = 0; next }
/^\[/ {
  matrix = 0
  title = substr($0, 2, length($0) - 2)
  print "\n## " title "\n\n| name | published | runs here | else why not |\n|---|---|---|---|"
  next
}
matrix {
  line = "|"; rule = "|"
  for (i = 1; i <= NF; ++i) { line = line " " $i " |"; rule = rule "---|" }
  print line
  if (++row == 1) print rule
  next
}
{ print "| " $1 " | " $2 " | " ($3 == "" ? "-" : $3) " | " ($4 == "" ? "-" : $4) " |" }
' profiles/published/taxonomy.txt
