# shellcheck shell=bash
# Bugs that the kernels for GPUs may have, and the tests that see them on the host; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

emulated=unit/unit_kernels cuda=lib/kernels/cuda

mutant cuda_tail_lost 'the last element of a row of odd width is left out' $cuda/block.hpp $emulated 1 '*Cuda*' \
  'i < width; i += threads) f(Count<1>' 'i + 1 < width; i += threads) f(Count<1>'
mutant cuda_sum_before_all_are_there 'a sum over a block does not wait for all warps' $cuda/block.hpp $emulated 1 '*Cuda*' \
  '  block.wait();
  for (int k = 0; k < N; ++k) {' '  for (int k = 0; k < N; ++k) {'
mutant cuda_room_reused_early 'a sum over a block writes where another is still read' $cuda/block.hpp $emulated 1 '*Cuda*' \
  '  block.wait();  // the room may be written again' ''
mutant cuda_bf16_cut_off 'numbers are cut off to bf16' $cuda/block.hpp $emulated 1 '*Cuda*' \
  'bits + 0x7fffU + (bits >> 16 & 1U)' 'bits'
mutant cuda_norm_of_the_mean 'the variance is that around zero' $cuda/norm.ipp $emulated 1 '*Cuda*' \
  '(value - centre) * (value - centre)' 'value * value'
mutant cuda_norm_part_short 'a part of the rows is one row short' $cuda/norm.ipp $emulated 1 '*Cuda*' \
  '(part < longer ? 1 : 0)' '0'
mutant cuda_columns_overwritten 'sums over rows overwrite what they should add to' $cuda/columns.ipp $emulated 1 '*Cuda*' \
  'accumulate ? *to + sum : sum' 'sum'
mutant cuda_activation_not_rounded 'an activation is of more digits than the backward pass reads' $cuda/activation.ipp $emulated 1 '*Cuda*' \
  'widened(rounded<T>(values[part][k]))' 'values[part][k]'
mutant cuda_geglu_slope 'the slope of geglu is that of swiglu' $cuda/activation.ipp $emulated 1 '*Cuda*' \
  '(1.0F - s) * inner' '(1.0F - s)'
mutant cuda_row_of_31_bits 'the place of a row is a number of 31 bits' $cuda/activation.ipp $emulated 1 '*CudaFarAway*' \
  'static_cast<T*>(call.y) + row * width' 'static_cast<T*>(call.y) + static_cast<int>(row * width)'
mutant cuda_rope_one_way 'positions are not turned back' $cuda/rope.ipp $emulated 1 '*Cuda*' \
  'call.inverse ? -1.0F : 1.0F' '1.0F'
mutant cuda_loss_of_forbidden 'a part of a row without a finite logit makes the loss no number' $cuda/cross_entropy.ipp $emulated 1 '*Cuda*' \
  'e = logit == part.highest ? 1.0F : std::exp' 'e = std::exp'
mutant cuda_loss_tie 'of equal logits the last is predicted' $cuda/cross_entropy.ipp $emulated 1 '*Cuda*' \
  'a.place < b.place' 'a.place > b.place'
mutant cuda_loss_truncates_late 'the error norm is that without the label' $cuda/cross_entropy.ipp $emulated 1 '*Cuda*' \
  ' - 2 * std::exp(-nll) + 1' ''
mutant cuda_rows_skipped 'every other row of the losses is left out of their sum' $cuda/optimizer.ipp $emulated 1 '*Cuda*' \
  'row < call.rows; row += block.threads()' 'row < call.rows; row += 2 * block.threads()'
mutant cuda_segment_summed_twice 'each occurrence of an id adds those after it' $cuda/embedding.ipp $emulated 1 '*Cuda*' \
  'first > 0 && call.ids[first - 1] == id' 'false'
mutant cuda_adamw_of_the_slope 'the second moment is of the gradient, not of its square' $cuda/optimizer.ipp $emulated 1 '*Cuda*' \
  'g * g * f.new_v' 'g * f.new_v'
mutant cuda_rounds_by_the_slice 'random numbers depend on where a slice begins' $cuda/optimizer.ipp $emulated 1 '*Cuda*' \
  'call.begin / 8 + group' 'group'
mutant cuda_squares_in_fp32 'squares are rounded to fp32' $cuda/optimizer.ipp $emulated 1 '*Cuda*' \
  'static_cast<double>(value) * static_cast<double>(value)' 'static_cast<double>(value * value)'
mutant cuda_dropout_of_another "an element is dropped by the half of another" $cuda/elementwise.ipp $emulated 1 '*Cuda*' \
  '16 * (k % 2)' '16 * ((k + 1) % 2)'
mutant cuda_noise_is_not_centred 'noise has a mean' $cuda/elementwise.ipp $emulated 1 '*Cuda*' \
  'static_cast<float>(halves[at + k]) + 0.5F' 'static_cast<float>(halves[at + k])'
mutant cuda_ema_of_a_skipped_step 'the mean of the weights follows a step that was skipped' $cuda/elementwise.ipp $emulated 1 '*Cuda*' \
  'if (*call.coefficient < 0) return;' ''
mutant cuda_embedding_offset 'positions of later tokens begin at 0' $cuda/embedding.ipp $emulated 1 '*Cuda*' \
  'call.offset + at % call.length' 'at % call.length'
mutant cuda_attention_any_order 'gradients of queries are added in any order' $cuda/attention.cpp $emulated 1 '*CudaAttention*' \
  '  const InOneOrder in_one_order;
' ''
mutant cuda_attention_padding 'queries see the padding of their row' $cuda/flash.cpp $emulated 1 '*CudaAttention*' \
  'key_begins + key_lengths' 'key_begins + keys'
mutant cuda_attention_one_of_a_group 'the gradient of a key is that of one query head of its group' $cuda/attention.cpp $emulated 1 '*CudaAttention*' \
  '.sum(3, false, at::kFloat)' '.select(3, 0)'
mutant cuda_attention_of_the_first 'each document has the log-sum-exp of the first' $cuda/attention.cpp $emulated 1 '*CudaAttention*' \
  'lse.narrow(1, begin, length)' 'lse.narrow(1, 0, length)'
mutant attention_part_forgets_its_place 'later parts of the queries see what the first part sees' lib/kernels/attention.cpp $emulated 1 '*AttentionReference*' \
  'keys - queries + first}' 'keys - queries}'
