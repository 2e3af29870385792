#pragma once

namespace argosy {

/// From now on, this thread and those that it starts compute with 0 instead of denormal numbers (of fp32, below
/// 1.2e-38). x86 takes a hundred cycles for each operand that is one, and probabilities of attention and moments of
/// weights without gradients come there, so that a step would take longer the longer a model has learned.
void flush_denormals();

}  // namespace argosy
