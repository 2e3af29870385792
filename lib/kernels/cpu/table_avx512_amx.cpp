#define ARGOSY_ISA avx512_amx
#include "kernels/cpu/table.ipp"
