#define ARGOSY_ISA avx512
#include "kernels/cpu/table.ipp"
