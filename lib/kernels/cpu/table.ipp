// The table of one instruction set: include with ARGOSY_ISA defined as its name; compile with its flags.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "kernels/cpu/table.hpp"
#include "kernels/stochastic.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define ARGOSY_TEXT_(x) #x
#define ARGOSY_TEXT(x) ARGOSY_TEXT_(x)

namespace argosy::kernels::cpu {

namespace ARGOSY_ISA {
namespace {

// each needs the one before
// clang-format off
#include "kernels/cpu/vector.ipp"
#include "kernels/cpu/rows.ipp"
#include "kernels/cpu/pack.ipp"
#include "kernels/cpu/products.ipp"
#include "kernels/cpu/attention.ipp"
#include "kernels/cpu/decoding.ipp"
#include "kernels/cpu/optimizer.ipp"
// clang-format on

template <class T>
constexpr Loops<T> loops() {
  return {norm<T>,
          norm_backward<T>,
          dropout_add<T>,
          add_noise<T>,
          activation<T>,
          activation_backward<T>,
          column_sum<T>,
          rotate<T>,
          embed<T>,
          add_scaled<T>,
          cross_entropy<T>,
          attention<T>,
          attention_backward<T>,
          pack_panel<T>,
          store_tile<T>,
          round_row<T>,
          attention_step<T>};
}

}  // namespace

extern const Table loop_table;
const Table loop_table{loops<float>(),
                       loops<Bf16>(),
                       pack_rows,
                       pack_panel_wide,
                       pack_rows_wide,
                       multiply_columns,
                       sum_partials,
                       adamw,
                       adamw_stochastic,
                       ema,
                       sum_of_squares,
                       scale_tile,
                       top_log_probabilities,
                       ARGOSY_TEXT(ARGOSY_ISA)};

}  // namespace ARGOSY_ISA

}  // namespace argosy::kernels::cpu
