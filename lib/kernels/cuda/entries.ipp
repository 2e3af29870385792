// The functions of entries.hpp. Who includes this file defines started(call, stream) before.
extern "C" {
int argosy_cuda_norm(const NormCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_norm_backward(const NormBackwardCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_column_sum(const ColumnSumCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_activation(const ActivationCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_activation_backward(const ActivationBackwardCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_dropout_add(const DropoutAddCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_add_noise(const AddNoiseCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_rope(const RopeCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_cross_entropy(const CrossEntropyCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_row_sums(const RowSumsCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_embedding(const EmbeddingCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_embedding_backward(const EmbeddingBackwardCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_adamw(const AdamwCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_adamw_stochastic(const AdamwStochasticCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_ema(const EmaCall* call, void* stream) { return started(*call, stream); }
int argosy_cuda_sum_of_squares(const SumOfSquaresCall* call, void* stream) { return started(*call, stream); }
}
