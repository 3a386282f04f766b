# Sourced by gpu_*.sh: a container engine of the script's own on a GPU machine, whose containers have this machine's files,
# the device nodes of the GPUs that they are given, namespaces of their own and a bridge. Of two at the same time one has
# another ENGINE_SUBNET.
engine_subnet=${ENGINE_SUBNET:-172.31.77}

engine_up() {
  # A script that was killed may leave its engine, whose bridge would take what is meant for this one's containers.
  engine=
  ! grep -qs -- "$engine_subnet.1\$" /proc/net/fib_trie ||
    { echo "$engine_subnet.1 is another engine's: end it, or ENGINE_SUBNET=a.b.c" >&2; return 1; }
  engine=$(mktemp -d /tmp/gpu-engine-XXXX)
  export DOCKER_HOST=unix://$engine/s.sock
  setsid dockerd --data-root "$engine/data" --exec-root "$engine/exec" --host "$DOCKER_HOST" \
    --pidfile "$engine/pid" >"$engine/log" 2>&1 &
  engine_process=$!
  for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 0.5; done
  local folder=$engine/root name
  mkdir -p "$folder"/{sbin,usr,etc,opt,tmp,proc,sys,dev,run,var/tmp,root,home,mnt}
  : >"$folder/sbin/docker-init"
  for name in bin lib lib64; do ln -s "usr/$name" "$folder/$name"; done
  tar -C "$folder" -c . | docker import - gpu-root >/dev/null &&
    docker network create --subnet $engine_subnet.0/24 gpu-net >/dev/null
}

engine_down() {
  [ -n "${engine:-}" ] || return 0
  docker ps -aq 2>/dev/null | xargs -r docker rm -f >/dev/null 2>&1
  docker network rm gpu-net >/dev/null 2>&1
  kill "$engine_process" 2>/dev/null && wait "$engine_process" 2>/dev/null
  rm -rf "$engine"
  unset DOCKER_HOST engine engine_process
}

# Sets `flags`: what docker run needs for a container with these GPUs (0,1,...) and this machine's files.
engine_flags() { # NAME LAST_OF_ADDRESS GPUS
  local folder device
  flags=(--rm --init --name "$1" --hostname "$1" --network gpu-net --ip "$engine_subnet.$2" --shm-size "${ENGINE_SHM:-8g}"
    --env LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" --env NCCL_NVLS_ENABLE=0 --env PYTHONPATH="${PYTHONPATH:-}" --env HOME=/tmp)
  # Not every root may raise it.
  if (ulimit -l unlimited) 2>/dev/null; then flags+=(--ulimit memlock=-1); fi
  for folder in /usr /etc /opt /run/nvidia/driver /var/lib/nvidia; do
    [ ! -d "$folder" ] || flags+=(--volume "$folder:$folder:ro")
  done
  for device in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools; do [ ! -e $device ] || flags+=(--device $device); done
  for device in ${3//,/ }; do flags+=(--device "/dev/nvidia$device"); done
}

engine_container() { # NAME LAST_OF_ADDRESS GPUS DOCKER_RUN_OPTIONS...
  engine_flags "$1" "$2" "$3"; shift 3
  docker run --detach "${flags[@]}" "$@" gpu-root sleep infinity >/dev/null
}
