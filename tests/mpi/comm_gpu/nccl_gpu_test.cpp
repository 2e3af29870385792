// On a machine with GPUs: the NCCL backend gives the bits of the MPI backend. Each rank has a GPU of its own where
// there are enough; else ranks share GPUs where NCCL can.
#include <ATen/ATen.h>

#include <cstdlib>
#include <iostream>

#include "comm/nccl_collectives.hpp"
#include "comm/nccl_watch.hpp"
#include "kernels/plugin.hpp"
#include "mpi/comm/reduction_case.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy, argosy::test::world;
using test::Case, test::Wire;

constexpr int shares_a_gpu = 23003;  // the first version of NCCL whose ranks may

class NcclOnGpu : public testing::TestWithParam<Wire> {
 protected:
  void SetUp() override {
    if (any_of(world(), kernels::gpu_count() == 0)) GTEST_SKIP() << "no GPU";
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    kernels::open_cuda_plugin(world().rank() % kernels::gpu_count());
    int version = 0;
    nccl_table().get_version(&version);
    std::cout << "NCCL " << nccl_version(nccl_table()) << '\n';
    if (world().size() > kernels::gpu_count() && version < shares_a_gpu)
      GTEST_SKIP() << "ranks of this NCCL cannot share a GPU";
  }
  /// Host memory as a tensor on the GPU.
  static at::Tensor to_gpu(std::vector<std::byte>& bytes) {
    return at::from_blob(bytes.data(), {std::ssize(bytes)}, at::kByte).to(at::kCUDA);
  }
  static BufferView view_of(const at::Tensor& tensor, DType dtype) {
    return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::int64_t>(tensor.nbytes() / size_of(dtype)),
            dtype};
  }
  /// Of what the stream of computation has been given.
  static Event computed() { return record_event(nccl_table(), nullptr); }
};

TEST_P(NcclOnGpu, ExactSumsHaveTheBitsOfTheMpiBackend) {
  Case c{Hierarchy::one_rank_a_node, GetParam(), 30011};
  make_mpi_collectives(c.topology, c.options())->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  const auto expected = c.shard_bits();
  const at::Tensor flat = to_gpu(c.flat);
  const at::Tensor shard = at::full({std::ssize(c.shard)}, -1.0, at::TensorOptions(at::kFloat).device(at::kCUDA));
  const auto collectives = make_collectives(c.topology, c.options(), true);
  const auto reduce = [&](bool continues) {
    collectives
        ->reduce_scatter(c.space, view_of(flat, c.flat_dtype), view_of(shard, DType::f32), computed(),
                         {.continues = continues})
        .wait();
    const at::Tensor host = shard.cpu();
    c.shard.assign(host.data_ptr<float>(), host.data_ptr<float>() + host.numel());
  };
  reduce(false);
  EXPECT_EQ(c.shard_bits(), expected);
  reduce(true);
  std::vector<float> twice = c.exact_sum();
  for (float& value : twice) value *= 2;
  EXPECT_EQ(c.shard_bits(), c.owned_bits(twice));
}

TEST_P(NcclOnGpu, GathersFillTheBuffer) {
  Case c{Hierarchy::flat, GetParam(), 30011};
  c.fill_own_slices();
  const at::Tensor flat = to_gpu(c.flat);
  const auto collectives = make_collectives(c.topology, c.options(), true);
  const Event gathered = collectives->all_gather(c.space, view_of(flat, c.flat_dtype), computed());
  gathered.wait_on(nullptr);  // the copy below is held, not the host
  const at::Tensor host = flat.cpu();
  std::memcpy(c.flat.data(), host.data_ptr(), c.flat.size());
  for (int slice = 0; slice < c.space.slices(); ++slice) EXPECT_TRUE(c.holds(slice)) << slice;
}

INSTANTIATE_TEST_SUITE_P(All, NcclOnGpu, testing::Values(Wire::fp32, Wire::bf16_flat, Wire::bf16_both),
                         argosy::test::by_name);

}  // namespace
}  // namespace argosy::comm
