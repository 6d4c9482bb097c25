#!/usr/bin/env bash
# Rehearses the Dockerfile where no container engine is: its own build steps in a folder, then the daemon as an unprivileged user
# whose whole file system is read-only but for the state folder. Needs root. The build arguments of the Dockerfile may be given in
# the environment (PIP_INDEX_URL, TORCH_INDEX_URL, TORCH_VERSION).
set -euo pipefail

checkout=$(cd "$(dirname "$0")/../.." && pwd)
uid=10001
ready_within=60   # seconds
stopped_within=30 # seconds; server.drain is 5s below
memory_limit=524288 # KiB, the limit in configs/kubernetes and configs/systemd

umask 022

step() { printf '\n-- %s\n' "$*"; }
fail() {
  printf 'rehearsal failed: %s\n' "$*" >&2
  [ ! -s "$work/log" ] || tail -n 40 "$work/log" >&2
  exit 1
}
docker_says() { python3 "$checkout/tests/support/dockerfile.py" "$1" "$checkout/Dockerfile" "$2" "$root"; }

work=$(mktemp -d)
root=$work/image
state=$root/var/lib/quantwatch
daemon=
clean_up() {
  [ -z "$daemon" ] || kill -KILL "$daemon" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
[ "$(id -u)" = 0 ] || fail "it has to become another user, so it needs root"
chmod 755 "$work"
marker=$work/marker
mkdir -p "$root/opt" "$root/etc/quantwatch"

as_user=(setpriv --reuid "$uid" --regid "$uid" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all)

# An interpreter that every user may run; one in the home folder of root is closed to others.
interpreter() {
  local one
  for one in python3 /usr/bin/python3 /usr/local/bin/python3; do
    one=$(command -v "$one") || continue
    if "${as_user[@]}" env -i "$one" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$one"
      return
    fi
  done
  fail "no Python 3.11 or later, with venv, that uid $uid may run"
}

# Runs a command as the image would: its environment, the unprivileged user, no capabilities, a read-only file system. Does not
# return. /proc and /dev stay as they are, as in a container.
contained() {
  local -a environment
  mapfile -t environment < <(docker_says env final)
  cd "$state"
  if [ "$namespaces" = no ]; then
    exec "${as_user[@]}" env -i "${environment[@]}" "$@"
  fi
  # shellcheck disable=SC2016 # the inner shell expands these
  exec unshare --mount --propagation private bash -euc '
    state=$1; shift
    mount --bind "$state" "$state"
    while read -r _ where kind options _; do
      case $where in "$state" | /proc* | /dev* | /sys*) continue ;; esac
      case ,$options, in *,ro,*) continue ;; esac
      mount -o remount,bind,ro "$where"
    done </proc/self/mounts
    if touch "$state/../writable" /tmp/writable 2>/dev/null; then echo "the file system is not read-only" >&2; exit 70; fi
    cd "$state"
    exec "$@"' contained "$state" "${as_user[@]}" env -i "${environment[@]}" "$@"
}

# Prints the status of an answer, 000 without one, and its body to the file $2.
ask() {
  python3 -I - "$1" "$2" <<'PYTHON'
import http.client, pathlib, sys
port, path = sys.argv[1].split("/", 1)
try:
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    pathlib.Path(sys.argv[2]).write_bytes(answer.read())
    print(answer.status)
except OSError:
    print("000")
PYTHON
}

step "Stage wheel: the wheel is built"
chosen=$(interpreter)
"$chosen" --version
"$chosen" -m venv "$work/bootstrap"
PATH=$work/bootstrap/bin:$PATH
export CONTEXT=$checkout PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=2
docker_says script wheel >"$work/wheel.sh"
cat "$work/wheel.sh"
bash -euo pipefail "$work/wheel.sh"
ls "$root/wheels"

step "Stage environment: torch and the wheel are installed"
docker_says script environment >"$work/environment.sh"
cat "$work/environment.sh"
bash -euo pipefail "$work/environment.sh"
chown -R root:root "$root"
chmod -R a-w "$root/opt"
install -d -o "$uid" -g "$uid" -m 0750 "$state"
quantwatch=$root/opt/quantwatch/bin/quantwatch
touch "$marker"

namespaces=yes
unshare --mount --propagation private true 2>/dev/null || namespaces=no
[ "$namespaces" = yes ] || echo "no mount namespaces here: only the installed tree is read-only"

step "check-config as uid $uid"
read -r port admin_port < <(python3 -I -c '
import socket
both = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in both))')
cat >"$root/etc/quantwatch/quantwatch.yaml" <<YAML
schema: 1
baseline: {url: "http://127.0.0.1:1"} # nobody listens there
targets: [{name: a, url: "http://127.0.0.1:2", scheme: int8, pool: p}]
pools: {p: {}}
task_sets: {math: {schedule: {every: 10s}}}
store: {path: "$state/quantwatch.db"}
server: {listen: "127.0.0.1:$port", admin_listen: "127.0.0.1:$admin_port", drain: 5s}
YAML
(contained "$quantwatch" check-config "$root/etc/quantwatch/quantwatch.yaml") || fail "check-config: exit $?"
(contained "$quantwatch" compare --baseline http://127.0.0.1:1 --node http://127.0.0.1:2 --task-set math) >"$work/log" 2>&1 && code=0 || code=$?
[ "$code" = 2 ] || fail "compare without servers: exit $code instead of 2"

step "run as uid $uid, with a baseline that does not answer"
mapfile -t arguments < <(docker_says command final)
echo "${arguments[*]}"
(contained "${arguments[@]}") >"$work/log" 2>&1 &
daemon=$!
for ((second = 0; ; second++)); do
  kill -0 "$daemon" 2>/dev/null || { wait "$daemon" && code=0 || code=$?; daemon=; fail "run ended with exit $code before it was ready"; }
  [ "$(ask "$port/-/ready" "$work/answer")" != 200 ] || break
  [ "$second" -lt "$ready_within" ] || fail "not ready within $ready_within s"
  sleep 1
done
echo "ready"

step "health check of the image, and the pages"
mapfile -t health < <(docker_says health final)
(contained "${health[@]//9469/$port}") || fail "the health check of the image: exit $?"
for page in -/healthy metrics verdict/a; do
  status=$(ask "$port/$page" "$work/answer")
  echo "/$page $status"
  [ "$status" = 200 ] || fail "/$page answered $status"
  [ "$page" != metrics ] || grep -q '^quantwatch_' "$work/answer" || fail "/metrics holds nothing of quantwatch"
done
[ "$(stat -c %u "/proc/$daemon")" = "$uid" ] || fail "the daemon does not run as uid $uid"
resident=$(sed -n 's/^VmRSS:\s*\([0-9]*\) kB/\1/p' "/proc/$daemon/status")
echo "resident: $((resident / 1024)) MiB"
[ "$resident" -lt "$memory_limit" ] || fail "more memory than the manifests allow"

step "SIGTERM"
kill -TERM "$daemon"
for ((second = 0; second < stopped_within; second++)); do
  kill -0 "$daemon" 2>/dev/null || break
  sleep 1
done
kill -0 "$daemon" 2>/dev/null && fail "still running $stopped_within s after SIGTERM"
wait "$daemon" && code=0 || code=$?
daemon=
[ "$code" = 0 ] || fail "exit $code after SIGTERM"
! grep -n Traceback "$work/log" || fail "a traceback in the log"
echo "exit 0"

step "What was written"
find "$state" -type f | sed "s|^$state/||"
[ -s "$state/quantwatch.db" ] || fail "no store in the state folder"
outside=$(find "$root" /tmp /var/tmp /dev/shm -newer "$marker" -user "$uid" -not -path "$state" -not -path "$state/*" 2>/dev/null || true)
[ -z "$outside" ] || fail "written outside the state folder: $outside"
outside=$(find "$root/opt" -newer "$marker" -print -quit)
[ -z "$outside" ] || fail "the installed tree was changed: $outside"
echo "nothing outside the state folder"
