# Finds podbayd in this container, or takes it from standard input, and becomes it. $1 is the working directory; what
# follows is for a podbayd that has to be started.
# Needs a shell, head, chmod, mkdir and mv; uses rm, id, uname, sleep, sha256sum and wc where they exist. Every program that is run here
# makes whoever waits for the sandbox wait a millisecond longer.
workdir=$1
shift
if [ -z "$workdir" ]; then
  for workdir in /workspace "$PWD" /tmp; do
    [ "$workdir" != / ] && { [ -d "$workdir" ] || mkdir "$workdir" 2>/dev/null; } && [ -w "$workdir" ] && break
  done
fi
umask 077
fail() { echo "podbay: fail $*"; exit 1; }
connect() {
  program=$1 state=$2
  shift 2
  exec "$program" connect --state "$state" --workdir "$workdir" "$@"
}
IFS='
'
set -f
# Becomes one that is there already.
look() {
  for dir in $dirs; do
    case $dir in /tmp/*) [ -O "$dir" ] || continue ;; esac
    [ -x "$dir/podbayd" ] || continue
    [ -z "$locked" ] || unlock
    connect "$dir/podbayd" "$dir" "$@"
  done
}
locked=
dirs=/run/podbay
look "$@"
user=$(id -u 2>/dev/null) || user=x
dirs="/run/podbay
/tmp/.podbay-$user
${HOME:+$HOME/.podbay}
$workdir/.podbay"
look "$@"
tools=
for tool in head chmod mkdir mv; do command -v "$tool" >/dev/null 2>&1 || tools="$tools $tool"; done
[ -z "$tools" ] || fail "tools$tools"
# Tried, not asked: for root everything is writable, and a full disk is too. The file is podbayd's own, which it makes anyway.
usable() {
  [ -d "$1" ] || mkdir -p "$1" 2>/dev/null || return 1
  case $1 in /tmp/*) [ -O "$1" ] || return 1 ;; esac
  { echo >>"$1/start.lock"; } 2>/dev/null
}
first=
for dir in $dirs; do usable "$dir" && first=$dir && break; done
[ -n "$first" ] || fail "directory"
command -v podbayd >/dev/null 2>&1 && connect podbayd "$first" "$@"
# Of several callers one takes the bytes; the others wait for it as long as it lives.
lock=$first/.sending
# Renamed first: of several callers that remove a lock at once, one gets it, and none removes what the next has just made.
unlock() { mv "$lock" "$first/.sent.$$" 2>/dev/null && rm -rf "$first/.sent.$$" 2>/dev/null; }
refused=
until mkdir "$lock" 2>/dev/null; do
  look "$@"
  if [ ! -d "$lock" ]; then
    refused=x$refused
    [ "$refused" != xxxxxxxx ] || fail "write $first"
  fi
  sleep 0.05 2>/dev/null || sleep 1
  [ -d "$lock" ] || continue
  owner=
  { read -r owner <"$lock/owner"; } 2>/dev/null
  # The owner writes its number just after it has made the directory.
  if [ -z "$owner" ]; then
    sleep 1
    look "$@"
    { read -r owner <"$lock/owner"; } 2>/dev/null
  fi
  [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null || unlock
done
echo $$ >"$lock/owner"
locked=yes
look "$@"
trap 'unlock; exit 1' HUP INT TERM PIPE
arch=$(uname -m 2>/dev/null) || arch=unknown
echo "podbay: need $arch"
IFS=' ' read -r count digest || { unlock; fail "input"; }
new=$first/.podbayd.$$
head -c "$count" >"$new" || { rm -f "$new"; unlock; fail "write $first"; }
# It stays in the first directory where it really runs: a test for -w and -x says nothing about noexec.
for dir in $dirs; do
  if [ "$dir" != "$first" ]; then
    usable "$dir" && mv -f "$new" "$dir/.podbayd.$$" 2>/dev/null || continue
  fi
  new=$dir/.podbayd.$$
  # Checks that it is what was sent, takes its name and removes the lock; 3 when it can't, and has said why.
  chmod 700 "$new" && "$new" self-install --from "$new" --bytes "$count" --digest "$digest" --to "$dir/podbayd" --lock "$lock"
  case $? in
    0) [ -x "$dir/podbayd" ] && connect "$dir/podbayd" "$dir" "$@" ;;
    3) rm -f "$new"; unlock; exit 1 ;;
  esac
  # Damaged, so that it couldn't check itself?
  if command -v wc >/dev/null 2>&1; then
    got=$(wc -c <"$new")
    [ "$((got))" = "$count" ] || { rm -f "$new"; unlock; fail "count $((got)) $count"; }
  fi
  if command -v sha256sum >/dev/null 2>&1; then
    sum=$(sha256sum <"$new")
    [ "${sum%% *}" = "$digest" ] || { rm -f "$new"; unlock; fail "digest"; }
  fi
done
# The directories' fault, or the program's? BusyBox calls its own shell just `sh`.
for shell in "$(command -v sh)" /bin/sh /usr/bin/sh /busybox/sh; do
  case $shell in /*) [ -x "$shell" ] && break ;; esac
done
for dir in $dirs; do
  usable "$dir" || continue
  { printf '#!%s\nexit 0\n' "$shell" >"$dir/.probe"; } 2>/dev/null || continue
  if chmod 700 "$dir/.probe" && "$dir/.probe" 2>/dev/null; then
    rm -f "$new" "$dir/.probe"
    unlock
    fail "run $arch"
  fi
  rm -f "$dir/.probe"
done
rm -f "$new"
unlock
fail "directory"
