# shellcheck shell=bash disable=SC2034 # launch is read by jobs/lib.sh
# For any Slurm whose srun supports PMI-2, with MPICH. USR1 is blocked until the program has installed its handler: a signal that
# arrives while libraries load would kill the rank. If a rank fails, the others are ended.
launch=(srun --mpi=pmi2 --kill-on-bad-exit=1 env --block-signal=USR1)
