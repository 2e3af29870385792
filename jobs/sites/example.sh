# shellcheck shell=bash disable=SC2034 # launch is read by jobs/lib.sh
# An example of a site with modules and InfiniBand. Copy it to <site>.sh and select it by ARGOSY_SITE=<site>.
# Settings that are fixed when a job is submitted (account, partition) belong into SBATCH_ACCOUNT and SBATCH_PARTITION in the user's
# shell. They override the #SBATCH lines, and the command line overrides both. If a module cannot be loaded, the job ends with code 2.
module load gcc/12 mpich/4 hdf5/1.10 || return
export UCX_NET_DEVICES=mlx5_0:1 # MPI between nodes
export NCCL_SOCKET_IFNAME=ib0   # NCCL's first contact
launch=(srun --mpi=pmi2 --kill-on-bad-exit=1 --cpu-bind=cores env --block-signal=USR1)
