#define ARGOSY_ISA avx2
#include "kernels/cpu/table.ipp"
