# shellcheck shell=bash
# Bugs that the kernels for CPUs and decoding may have, and the tests that see them; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

kernels=unit/unit_kernels cpu=lib/kernels/cpu

mutant freed_blocks_stay_apart 'a freed block does not join the one before it' lib/core/large_blocks.cpp unit/unit_core 1 'LargeBlocks.*' \
  'before->first + before->second == first' 'false'
mutant block_taken_twice 'a block that is taken stays in the list of free ones' lib/core/large_blocks.cpp unit/unit_core 1 'LargeBlocks.*' \
  'by_size_.erase({at->second, at->first});' ''
mutant gemm_depth_overwritten 'a later part of the depth overwrites the sums' $cpu/gemm.cpp $kernels 1 '*Gemm*' \
  'accumulate || k + part > 0' 'accumulate'
mutant gemm_odd_row_lost 'the last of an odd number of bf16 rows is not packed' $cpu/pack.ipp $kernels 1 '*Gemm*' \
  'matrix[j * column_stride + rows - 1].bits' '0'
mutant gemm_odd_column_lost 'the last of an odd number of bf16 columns is not packed' $cpu/pack.ipp $kernels 1 '*Gemm*' \
  'std::min<std::int64_t>(16, (columns - k + 1) / 2)' 'std::min<std::int64_t>(16, (columns - k) / 2)'
mutant gemm_lanes_mixed 'rows of a transposed block of bf16 are mixed up' $cpu/pack.ipp $kernels 1 '*Gemm*' \
  'done + r / 4 * 8 + r % 4' 'done + r'
mutant softmax_of_padding 'what lies next to the last scores counts in their sum' $cpu/attention.ipp $kernels 1 '*Attention*' \
  'v = at.or_else(at.get(from), nothing), e' 'v = at.get(from), e'
mutant part_stores_too_much 'the last vector of a row is stored whole' $cpu/vector.ipp $kernels 1 '*Rope*' \
  '_mm256_mask_storeu_epi16(row + i, mask,' '_mm256_mask_storeu_epi16(row + i, 0xffff,'
mutant int8_shift_not_undone 'the shift of unsigned integers stays in an int8 product' $cpu/pack.ipp $kernels 1 '*GemmInt8*' \
  'sums[j] - 128 * column_sums[j]' 'sums[j]'
mutant int8_hides_nan 'a row with NaN gives numbers in an int8 product' $cpu/pack.ipp $kernels 1 '*GemmInt8*' \
  'return finite ? highest / 127 : std::numeric_limits<float>::quiet_NaN();' 'return highest / 127;'
if grep -qsw amx_bf16 /proc/cpuinfo; then # elsewhere nothing reads this file
  amx=$cpu/products_amx.ipp
  mutant amx_rest_of_depth_lost 'a depth that is no multiple of a tile is cut' $amx $kernels 1 '*Attention*' \
    'if (depth > 0) {' 'if (false) {'
  mutant amx_lower_rows_repeated 'the lower half of a block is multiplied as the upper one' $amx $kernels 1 '*Attention*' \
    '_tile_loadd(left, a + tile_side * ai, 4 * ai);' '_tile_loadd(left, a, 4 * ai);'
  mutant amx_scale_lost 'scores are not scaled' $amx $kernels 1 '*Attention*' \
    'if (adds || scale == 1) return;' 'return;'
  mutant amx_sums_start_again 'a later block of queries overwrites the gradients of keys' $amx $kernels 1 '*Attention*' \
    'if constexpr (adds) {' 'if constexpr (adds && down == 3) {'
fi
mutant attention_window_wide 'a window sees one key too many' $cpu/attention.ipp $kernels 1 '*Attention*' \
  'position + 1 - shape.window' 'position - shape.window'
mutant attention_pairs_shift 'pairs of keys begin where the keys of a part do' $cpu/attention.ipp $kernels 1 'AttentionThreads.*' \
  'range.first - range.first % 2' 'range.first'
mutant attention_part_of_queries 'a part of the keys gets gradients of its own queries alone' $cpu/attention.cpp $kernels 1 '*Attention*' \
  '{0, 0, 0, queries, first, end, false, true}' '{0, 0, first, std::min(end, queries), first, end, false, true}'
mutant step_forgets_its_position 'a step of decoding does not store its keys and values' $cpu/decoding.ipp $kernels 1 '*AttentionStep*' \
  'if (added != nullptr) std::copy' 'if (false) std::copy'
mutant step_window_wide 'a window sees one position too many in decoding' $cpu/decoding.ipp $kernels 1 '*AttentionStep*' \
  'length - shape.window) : 0' 'length - shape.window - 1) : 0'
mutant attention_bias_reversed 'a bias is taken by the distance of the query from the key' $cpu/attention.ipp $kernels 1 '*Attention*' \
  'shape.queries - 1 - query;' 'query;'
mutant attention_bias_of_one_row 'all rows add to the gradient of the bias of the first' $cpu/attention.ipp $kernels 1 '*Attention*' \
  'io.dbias + row * shape.heads' 'io.dbias + 0 * shape.heads'
mutant step_bias_from_the_left 'a step of decoding takes a bias from the first position on' $cpu/decoding.ipp $kernels 1 '*AttentionStep*' \
  '(head + 1) * shape.most - seen' 'head * shape.most'
mutant bias_looks_ahead_in_decoders "a decoder has the buckets of an encoder" lib/model/block.cpp unit/unit_model 1 '*Gradient*T5*' \
  '/*bidirectional=*/encoder_' '/*bidirectional=*/true'
mutant bias_of_one_block "the last block alone leaves its gradient of the shared bias" lib/model/block.cpp unit/unit_model 1 '*Gradient*T5*' \
  'encoder_, slot.gradient, slot.accumulate' 'encoder_, slot.gradient, false'
mutant choice_ties_to_the_higher 'of equal ids the higher one is chosen' $cpu/decoding.ipp $kernels 1 'TopLogProbabilities.*' \
  'at > 0 && logits[i] > values[at - 1]' 'at > 0 && logits[i] >= values[at - 1]'
mutant choice_passes_over 'a block of ids is passed over unless it has the best id so far' $cpu/decoding.ipp $kernels 1 'TopLogProbabilities.*' \
  'peaks[b] > values[count - 1]' 'peaks[b] > values[0]'
mutant sources_of_other_rows 'rows that are reordered keep the sources of those before them' lib/model/inference.cpp unit/unit_model 1 \
  '*CachedInference*' '  impl_->rows = std::move(kept);
  impl_->source_places.reset();' '  impl_->rows = std::move(kept);'
mutant places_given_twice 'places that are in use are given again' lib/model/inference.cpp unit/unit_model 1 '*CachedInference*' \
  'if (!used[place]) free' 'free'
mutant eos_forbidden_to_others 'the least length forbids EOS to another sentence' lib/decode/search.cpp unit/unit_decode 1 '*RandomModel*' \
  '      row += rows;' ''
mutant attention_prompt_to_itself 'a position of a prompt does not see the later ones' $cpu/attention.ipp $kernels 1 'AttentionMask.*' \
  'end = std::max(end, shape.prompts[row * shape.queries + query]);' ''
mutant prompt_ends_early 'a search reads a prompt without its last id' lib/decode/search.cpp unit/unit_decode 1 '*RandomModel*' \
  '(has_encoder || shape.prefix_lm ? 0 : 1)' '(has_encoder ? 0 : 1)'
mutant wide_rows_of_one_column 'columns that are packed as fp32 are all the first of their block' $cpu/pack.ipp $kernels 1 'Packing.*' \
  'matrix + i + (k + c) * column_stride' 'matrix + i + (k + 0 * c) * column_stride'
mutant columns_start_anew 'a later part of the depth of columns overwrites the sums' $cpu/gemm.cpp $kernels 1 '*Gemm*' \
  'task.accumulate || k > 0' 'task.accumulate'
mutant columns_forget_part 'a product is not added to columns that are no whole vectors' $cpu/products.ipp $kernels 1 'Products.*' \
  'k < count && adds' 'k < count && !adds'
mutant columns_stay_wide 'the right half of a panel of columns is not multiplied' $cpu/products.ipp $kernels 1 'Products.*' \
  'columns - j > most / 2 * lanes' 'columns - j > most * lanes'
mutant rows_of_any_width_in_place 'rows of a width that is no half panel are read in place, and beyond their end' $cpu/gemm.cpp $kernels 1 'Gemm.*' \
  'matrix.size(1) % (panel_columns / 2) == 0 &&' ''
mutant bias_of_first_panel 'each panel of a product has the bias of the first one' $cpu/gemm.cpp $kernels 1 '*Gemm*' \
  'p.bias + column : nullptr' 'p.bias + task.column : nullptr'
