#define ARGOSY_ISA avx512_bf16
#include "kernels/cpu/table.ipp"
