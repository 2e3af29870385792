#define ARGOSY_ISA baseline
#include "kernels/cpu/table.ipp"
