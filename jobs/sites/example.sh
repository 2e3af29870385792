# shellcheck shell=bash disable=SC2034 # launch is read by jobs/lib.sh
# A site with modules and InfiniBand; copy it to <site>.sh and choose it by ARGOSY_SITE=<site>.
# What is fixed when a job is submitted (account, partition) goes into SBATCH_ACCOUNT, SBATCH_PARTITION in the user's
# shell: they override the #SBATCH lines, and the command line overrides both.
# Without them the job ends with code 2.
module load gcc/12 mpich/4 hdf5/1.10 || return
export UCX_NET_DEVICES=mlx5_0:1 # MPI between nodes
export NCCL_SOCKET_IFNAME=ib0   # NCCL's first contact
launch=(srun --mpi=pmi2 --kill-on-bad-exit=1 --cpu-bind=cores env --block-signal=USR1)
