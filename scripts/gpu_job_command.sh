# Sourced by gpu_job_*.sh: writes $out/job.sh, a plain PyTorch job of RANKS (2) ranks with a GPU each, as WALL says (over
# loopback they take turns on the GPUs where there are fewer, each a host of its own to NCCL, which refuses two of one host), and
# $out/bare.sh, the same without containers: NVLink with GPU_NODES=all, else NCCL's shared memory.
# WALL=docker: GPU_NODES=own (default) or all, the device nodes of a container.
#   job_command MODEL        MODEL: one of scripts/ddp_steps.py, or "sizes": all-reduces of 4 KiB to 64 MiB in turn
# Needs $out, $root, $programs. WALL=docker also brings an engine up; the caller's traps must call job_down.
. "$root/scripts/gpu_engine.sh"

job_down() {
  engine_down
  [ -z "${DYNAMICCL_SHARED_FOLDER:-}" ] || { umount "$DYNAMICCL_SHARED_FOLDER" && rmdir "$DYNAMICCL_SHARED_FOLDER"; }
}

# What a settings file of the tuner wants preloaded (docs/one-host.md).
preload_of() { sed -n 's/^# In the environment of every rank: LD_PRELOAD=//p' "$1"; }

job_command() {
  local job last=$((${RANKS:-2} - 1))
  export WORLD_SIZE=$((last + 1)) LOCAL_RANK=0 NCCL_NVLS_ENABLE=0
  if [ "$1" = sizes ]; then job=(python3 "$root/scripts/nccl_sizes.py"); else
    job=(python3 "$root/scripts/ddp_steps.py" --models "$1" --warmup 2)
  fi
  cat >"$out/job.sh" <<JOB
#!/bin/bash
# Ranks of a plain job, one GPU each: what is being tuned.   job.sh STEPS FILE_OF_STEPS
pids=() code=0
trap 'kill "\${pids[@]}" 2>/dev/null' TERM INT
export MASTER_PORT=\$((20000 + RANDOM % 20000))
JOB
  if [ "${WALL:-loopback}" = docker ]; then
    export MASTER_ADDR=$engine_subnet.10 NCCL_SOCKET_IFNAME=eth0
    # By this folder the ranks are tried as one host; the script that sources this unmounts it.
    export DYNAMICCL_SHARED_FOLDER=/run/gpu-job-$$
    mkdir -p "$DYNAMICCL_SHARED_FOLDER" && mount -t tmpfs -o size=16g,mode=1777 gpu-job "$DYNAMICCL_SHARED_FOLDER" || exit 2
    local nodes='$rank' visible=
    if [ "${GPU_NODES:-own}" = all ]; then nodes=$(seq -s, 0 "$last") visible='--env CUDA_VISIBLE_DEVICES=$rank'; fi
    engine_up || { tail -n 5 "$engine/log"; exit 2; }
    cat >>"$out/job.sh" <<JOB
. $root/scripts/gpu_engine.sh
docker rm -f $(seq -s ' ' -f job%.0f 0 $last) >/dev/null 2>&1
for rank in {0..$last}; do
  engine_flags job\$rank \$((10 + rank)) $nodes
  passed=(--env RANK=\$rank $visible --volume $DYNAMICCL_SHARED_FOLDER:$DYNAMICCL_SHARED_FOLDER)
  for name in LD_PRELOAD DYNAMICCL_SHARED_FOLDER WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT NCCL_SOCKET_IFNAME NCCL_CONF_FILE PATH NCCL_SOCKET_NTHREADS \
    NCCL_NSOCKS_PERTHREAD NCCL_MIN_CTAS NCCL_DEBUG NCCL_DEBUG_SUBSYS; do passed+=(--env \$name); done
  docker run "\${flags[@]}" "\${passed[@]}" --volume $out:$out --volume $programs:$programs:ro --volume $root/scripts:$root/scripts:ro \
    gpu-root ${job[*]} --steps "\$1" --each "\$2" & pids+=(\$!)
done
JOB
  else
    export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1
    local gpus own_gpu='$rank'
    gpus=$(nvidia-smi -L | wc -l)
    if [ "$gpus" -gt 0 ] && [ "$gpus" -le "$last" ]; then own_gpu="\$((rank % $gpus)) NCCL_HOSTID=rank-\$rank"; fi
    cat >>"$out/job.sh" <<JOB
for rank in {0..$last}; do
  RANK=\$rank CUDA_VISIBLE_DEVICES=$own_gpu ${job[*]} --steps "\$1" --each "\$2" & pids+=(\$!)
done
JOB
  fi
  cat >>"$out/job.sh" <<'JOB'
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
wait
exit $code
JOB
  # The same job without containers, in what NCCL has for GPUs that each container sees.
  cat >"$out/bare.sh" <<JOB
#!/bin/bash
export MASTER_ADDR=127.0.0.1 NCCL_SOCKET_IFNAME=lo MASTER_PORT=\$((20000 + RANDOM % 20000)) $([ "${GPU_NODES:-own}" = all ] || echo NCCL_P2P_DISABLE=1)
for rank in {0..$last}; do
  RANK=\$rank CUDA_VISIBLE_DEVICES=\$rank ${job[*]} --steps "\$1" --each "\$2" & pids+=(\$!)
done
wait "\${pids[@]}"
JOB
  chmod +x "$out/job.sh" "$out/bare.sh"
  nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader | tee "$out/machine.txt"
  python3 -c 'import torch; print("torch", torch.__version__, "nccl", torch.cuda.nccl.version())' | tee -a "$out/machine.txt"
}
