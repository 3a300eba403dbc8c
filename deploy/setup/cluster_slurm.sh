#!/usr/bin/env bash
# Runs deploy/cluster.yaml on the nodes of a Slurm job, one Ray per node:  sbatch -N 3 deploy/setup/cluster_slurm.sh
# Not run here. All nodes see one checkout at the same path, and so its folder of runs; each needs `make setup ray`.
# DESKTOPS is what one node holds.
#SBATCH --job-name=computerrl
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?submit this with sbatch, in the checkout}"
ray=$PWD/.venv/bin/ray
port=${RAY_PORT:-6379}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')
export RAY_AUTH_MODE=token  # the token lies in the home folder, which the nodes share
"$ray" get-auth-token --generate >/dev/null
common=(--block --disable-usage-stats --object-store-memory=80000000)

srun --nodes=1 --ntasks=1 --overlap -w "$head" \
    "$ray" start --head --node-ip-address="$address" --port="$port" --include-dashboard=false "${common[@]}" &
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --overlap -w "$node" \
        "$ray" start --address="$address:$port" --resources="{\"desktops\": ${DESKTOPS:-36}}" "${common[@]}" &
done
# The run waits for the nodes by itself (cluster.wait_s) and says what is missing. Slurm ends the Rays with the job.
srun --nodes=1 --ntasks=1 --overlap -w "$head" \
    .venv/bin/computerrl run deploy/cluster.yaml --set cluster.address="$address:$port" "$@"
