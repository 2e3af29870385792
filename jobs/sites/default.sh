# shellcheck shell=bash disable=SC2034 # launch is read by jobs/lib.sh
# Any Slurm whose srun speaks PMI-2, with MPICH. USR1 stays pending until the program has its handler: arriving while
# libraries load, it would kill the rank. A rank that fails ends the others.
launch=(srun --mpi=pmi2 --kill-on-bad-exit=1 env --block-signal=USR1)
