# Sourced by the scripts next to it: packages from the mirror and with the keyring this machine
# already trusts. Nothing here changes the machine's own apt state or sources.

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }

machine_codename() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

# URI|SUITE|SOURCE-FILE of every repository of the distribution itself (not of third parties).
machine_repositories() {
  local codename=$1
  apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(SOURCESENTRY)' \
    'Created-By: Packages' 2>/dev/null |
    awk -F'|' -v code="$codename" '
      $3 != "main" { next }
      $2 !~ "^(" code "|stable|oldstable)(-updates|-security|/updates)?$" { next }
      # Before the first apt-get update the origin is unknown: then the path must look like a mirror.
      $4 ~ /^[A-Z]/ && $4 != "Debian" && $4 != "Ubuntu" { next }
      $4 !~ /^[A-Z]/ && $1 !~ /\/(debian|debian-security|ubuntu|ubuntu-ports)\/?$/ && $1 !~ /^mirror\+file:/ { next }
      { file = $5; sub(/:[0-9]+$/, "", file); line = $1 "|" $2 "|" file }
      !seen[line]++ { print line }'
}

# The key file the machine's sources name for a repository, else the distribution's own.
repository_keyring() {
  local uri=${1%/} file=$2 key="" candidate
  case "$file" in
    *.sources)
      key=$(awk -v RS="" -v uri="$uri" 'index($0, uri) {
        n = split($0, lines, "\n")
        for (i = 1; i <= n; i++) if (lines[i] ~ /^[Ss]igned-[Bb]y:[ \t]*\//) {
          sub(/^[^:]*:[ \t]*/, "", lines[i]); print lines[i]; exit } }' "$file") ;;
    *) key=$(grep -F "$uri" "$file" | sed -n 's/.*signed-by=\([^] ]*\).*/\1/p' | head -n 1) ;;
  esac
  for candidate in "$key" /usr/share/keyrings/debian-archive-keyring.gpg \
    /usr/share/keyrings/debian-archive-keyring.pgp /usr/share/keyrings/ubuntu-archive-keyring.gpg; do
    if [ -n "$candidate" ] && [ -r "$candidate" ]; then echo "$candidate"; return; fi
  done
}

# One sources.list line per repository of the machine's release.
machine_sources() {
  local uri suite file key
  machine_repositories "$1" | while IFS='|' read -r uri suite file; do
    key=$(repository_keyring "$uri" "$file")
    echo "deb ${key:+[signed-by=$key] }$uri $suite main"
  done
}

# The same mirror with another suite, e.g. sid or bookworm-backports.
mirror_source() {
  local suite=$1 codename first uri file key
  codename=$(machine_codename)
  first=$(machine_repositories "$codename" | grep -E "\|($codename|stable|oldstable)\|" | head -n 1)
  [ -n "$first" ] || fail "no mirror of $codename in this machine's apt sources (/etc/apt/sources.list*): add one, then run apt-get update"
  IFS='|' read -r uri _ file <<<"$first"
  key=$(repository_keyring "$uri" "$file")
  echo "deb ${key:+[signed-by=$key] }$uri $suite main"
}

# private_apt STATE SUITE: sets APT to an apt-get whose lists, cache and status lie in STATE, and
# APT_EXPIRED to 1 when the mirror's copy of the suite is older than its makers vouch for, else to 0.
private_apt() {
  local state=$1 suite=$2
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/none"
  : >"$state/status"
  mirror_source "$suite" >"$state/sources.list"
  APT=(apt-get -q -o "Dir::State=$state" -o "Dir::State::lists=$state/lists"
    -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
    -o "Dir::Etc::sourcelist=$state/sources.list" -o "Dir::Etc::sourceparts=$state/none"
    -o Dir::Etc::preferences=/dev/null -o "Dir::Etc::preferencesparts=$state/none"
    -o Acquire::Languages=none -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=0)
  APT_EXPIRED=0
  "${APT[@]}" update >"$state/log" 2>&1 && return
  local expired
  if expired=$(grep -m 1 -o 'Release file for .* is expired ([^)]*)' "$state/log"); then
    # A mirror that is renewed seldom: who signed is still checked, how long ago is not.
    APT+=(-o Acquire::Check-Valid-Until=false)
    if "${APT[@]}" update >"$state/log" 2>&1; then
      APT_EXPIRED=1
      echo "$expired: taken as it is, its signature is good" >&2
      return
    fi
  fi
  fail "cannot read suite $suite of this machine's mirror: $(tail -n 3 "$state/log" | tr '\n' ' ')"
}
