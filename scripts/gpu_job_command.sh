# Sourced by gpu_job_*.sh: writes $out/job.sh, a plain PyTorch job of RANKS (2) ranks with a GPU each, as WALL says.
#   job_command MODEL        MODEL: one of scripts/ddp_steps.py, or "sizes": all-reduces of 4 KiB to 64 MiB in turn
# Needs $out, $root, $programs. WALL=docker also brings an engine up; the caller's traps must call engine_down.
. "$root/scripts/gpu_engine.sh"

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
    engine_up || { tail -n 5 "$engine/log"; exit 2; }
    cat >>"$out/job.sh" <<JOB
. $root/scripts/gpu_engine.sh
docker rm -f $(seq -s ' ' -f job%.0f 0 $last) >/dev/null 2>&1
for rank in {0..$last}; do
  engine_flags job\$rank \$((10 + rank)) \$rank
  passed=(--env RANK=\$rank)
  for name in WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT NCCL_SOCKET_IFNAME NCCL_CONF_FILE PATH NCCL_SOCKET_NTHREADS \
    NCCL_NSOCKS_PERTHREAD NCCL_MIN_CTAS NCCL_DEBUG NCCL_DEBUG_SUBSYS; do passed+=(--env \$name); done
  docker run "\${flags[@]}" "\${passed[@]}" --volume $out:$out --volume $programs:$programs:ro --volume $root/scripts:$root/scripts:ro \
    gpu-root ${job[*]} --steps "\$1" --each "\$2" & pids+=(\$!)
done
JOB
  else
    export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1
    cat >>"$out/job.sh" <<JOB
for rank in {0..$last}; do
  RANK=\$rank CUDA_VISIBLE_DEVICES=\$rank ${job[*]} --steps "\$1" --each "\$2" & pids+=(\$!)
done
JOB
  fi
  cat >>"$out/job.sh" <<'JOB'
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
wait
exit $code
JOB
  chmod +x "$out/job.sh"
  nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader | tee "$out/machine.txt"
  python3 -c 'import torch; print("torch", torch.__version__, "nccl", torch.cuda.nccl.version())' | tee -a "$out/machine.txt"
}
