#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

/// Matrix products. Operands are fp32 or bf16, both of one type; products and sums are fp32 and are rounded once, when
/// they are stored. On CPUs with AVX2, the bits of an element depend on its row, its column and their length only: not
/// on the other rows, and not on the number of threads.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

/// int8: see PackedMatrix::scales. brief: for a single product with the few columns of a matrix, as the gradient of
/// weights is one; even rows that are read slowly are then not worth a copy.
enum class PackedType { same, int8, brief };

/// The right operand of a product, in the order in which the device reads it. It may share the memory of the matrix, so
/// use it before that changes.
struct PackedMatrix {
  at::Tensor data;  // the matrix itself where the device has no such order, or reads its rows about as fast
  std::int64_t rows = 0, columns = 0;
  /// int8: column j is data·scales[j] with integers from -127 to 127, and scales[j] = max |column j| / 127. The rows of
  /// the left operand are rounded to 8 bits in the same way. Products and sums of integers are exact.
  at::Tensor scales{};  // fp32 [columns]; undefined: not int8
  at::Tensor sums{};    // int32 [columns]: of the integers of a column
};
/// matrix: [k, n], a view with one stride of 1.
[[nodiscard]] PackedMatrix pack_matrix(const at::Tensor& matrix, PackedType type = PackedType::same);

struct GemmOptions {
  bool accumulate = false;  // c += instead of c =
  OptionalTensor bias{};    // [n], of the type of a: added to each row
};

/// c = a·b + bias. a: [m, k], b: [k, n]: views with one stride of 1; c: [m, n], rows contiguous, fp32 or of the type of
/// a.
void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options = {});
void gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const GemmOptions& options = {});
/// a·b + bias, of the type of a.
[[nodiscard]] at::Tensor gemm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& bias = std::nullopt);
[[nodiscard]] at::Tensor gemm(const at::Tensor& a, const PackedMatrix& b, const OptionalTensor& bias = std::nullopt);

/// What the last bits of results on this processor depend on: the instruction set of this module's loops, and those of
/// the matrix products, such as "avx512 bf16".
[[nodiscard]] std::string cpu_instructions();

using PackMatrix = PackedMatrix(const at::Tensor& matrix, PackedType type);
using Gemm = void(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options);

namespace plain {
PackMatrix pack_matrix;
Gemm gemm;
}  // namespace plain

}  // namespace argosy::kernels
