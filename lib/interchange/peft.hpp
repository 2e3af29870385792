#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "interchange/hf_family.hpp"
#include "model/stored_model.hpp"
#include "spec/fine_tuning.hpp"

/// Folders of adapters alone, in the format of Hugging Face's peft (FORMAT.md). peft.cpp writes them, peft_import.cpp
/// reads them. Torch-free.
namespace argosy::interchange {

inline constexpr const char *adapter_config_file = "adapter_config.json", *adapter_stem = "adapter_model";

/// The adapters of a matrix of the family.
struct Adapter {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  const spec::Parameter *down, *up;
  spec::AdapterPart part;
  /// Names of their tensors.
  [[nodiscard]] std::string down_name() const { return "base_model.model." + module + ".lora_A.weight"; }
  [[nodiscard]] std::string up_name() const { return "base_model.model." + module + ".lora_B.weight"; }
};

struct AdapterList {
  std::vector<Adapter> adapters;
  std::set<std::string> others;  // modules with a matrix and no adapters
};
/// adapted: the specification of a model with adapters, whose parameters the list borrows.
[[nodiscard]] AdapterList adapters_of(const spec::ModelSpec& adapted);

/// Whether the folder holds such adapters. Throws Error{io}.
[[nodiscard]] bool is_peft(const Files& files, const Path& folder);

/// Reads the adapters of `adapted`, which it borrows. Throws Error{data} if the folder has others: of another rank,
/// with another factor, of other matrices, or of a kind that Argosy does not have; Error{corrupt}, Error{io}.
[[nodiscard]] std::unique_ptr<const model::WeightSource> peft_adapters(const Files& files, const Path& folder,
                                                                       const spec::ModelSpec& adapted);

}  // namespace argosy::interchange
