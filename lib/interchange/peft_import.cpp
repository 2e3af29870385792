#include <boost/json.hpp>
#include <cmath>
#include <map>

#include "core/error.hpp"
#include "interchange/peft.hpp"
#include "interchange/safetensors.hpp"

namespace argosy::interchange {
namespace {

using boost::json::object;

[[noreturn]] void refuse_adapters(const Path& folder, const std::string& what, std::string wanted, std::string got,
                                  std::string remedy) {
  throw_claim(Fault::data, fmt::format("{}: {}", folder.string(), what), folder.string(), std::move(wanted),
              std::move(got), std::move(remedy));
}

/// The keys by which adapters compute something else than scale·B·A, and the values by which they do not.
void require_plain(const object& config, const Path& folder) {
  const std::pair<const char*, std::vector<boost::json::value>> keys[] = {
      {"peft_type", {"LORA"}},
      {"bias", {"none"}},
      {"fan_in_fan_out", {false}},
      {"use_dora", {false}},
      {"rank_pattern", {object{}, nullptr}},
      {"alpha_pattern", {object{}, nullptr}},
      {"modules_to_save", {nullptr, boost::json::array{}}},
      {"layer_replication", {nullptr}}};
  for (const auto& [key, plain] : keys) {
    const boost::json::value* const value = config.if_contains(key);
    if (value == nullptr || std::ranges::count(plain, *value) > 0) continue;
    refuse_adapters(folder, fmt::format("{} is {}", key, boost::json::serialize(*value)),
                    boost::json::serialize(plain.front()), boost::json::serialize(*value),
                    "use adapters of plain LoRA, all of one rank");
  }
}

double number_of(const object& config, const char* key, const Path& folder) {
  const boost::json::value* const value = config.if_contains(key);
  if (value == nullptr || !value->is_number() || !(value->to_number<double>() > 0))
    refuse_adapters(folder, fmt::format("{} has no {}", adapter_config_file, key), "a number above 0", "none",
                    "get the folder again, or save it again with save_pretrained()");
  return value->to_number<double>();
}

class PeftWeights final : public model::WeightSource {
 public:
  PeftWeights(const Files& files, const Path& folder, const spec::ModelSpec& adapted)
      : tensors_(files, folder, adapter_stem) {
    const AdapterList list = adapters_of(adapted);
    std::set<std::string> used;
    for (const Adapter& adapter : list.adapters) {
      add(folder, adapter.down_name(), *adapter.down, adapter.part.down, adapter.part.rank);
      add(folder, adapter.up_name(), *adapter.up, adapter.part.up, adapter.part.rows);
      used.insert({adapter.down_name(), adapter.up_name()});
    }
    for (const auto& [name, entry] : tensors_.tensors())
      if (!used.contains(name))
        refuse_adapters(folder, "it has adapters of other matrices, such as " + name, "those of lora.targets", name,
                        "set lora.targets to the matrices that its adapters are for");
  }

  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    read_ranges(tensors_, sources_.at(parameter.name), begin, to);
  }

 private:
  void add(const Path& folder, const std::string& name, const spec::Parameter& parameter, std::int64_t row,
           std::int64_t rows) {
    const std::int64_t columns = parameter.shape.back();
    const auto found = tensors_.tensors().find(name);
    if (found == tensors_.tensors().end())
      refuse_adapters(folder, "it has no " + name, "adapters for all of lora.targets", "none for this matrix",
                      "set lora.targets to the matrices that its adapters are for");
    if (found->second.shape != std::vector{rows, columns})
      refuse_adapters(folder, fmt::format("{} has another shape", name), fmt::format("[{}, {}]", rows, columns),
                      "another", "use adapters of this model");
    sources_[parameter.name].push_back({name, row * columns, rows * columns});
  }

  Safetensors tensors_;
  std::map<std::string, std::vector<ParameterRange>> sources_;  // by parameter
};

}  // namespace

bool is_peft(const Files& files, const Path& folder) { return files.exists(folder / adapter_config_file); }

std::unique_ptr<const model::WeightSource> peft_adapters(const Files& files, const Path& folder,
                                                         const spec::ModelSpec& adapted) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(files.read_text(folder / adapter_config_file, 16 << 20), error);
  if (error || !value.is_object())
    refuse_adapters(folder, fmt::format("{} is no JSON object", adapter_config_file), "a JSON object",
                    error ? error.message() : "another value", "save it again with save_pretrained()");
  const object& config = value.get_object();
  require_plain(config, folder);
  const double rank = number_of(config, "r", folder), alpha = number_of(config, "lora_alpha", folder);
  const boost::json::value* const rslora = config.if_contains("use_rslora");
  const bool by_root = rslora != nullptr && rslora->is_bool() && rslora->get_bool();
  const double scale = alpha / (by_root ? std::sqrt(rank) : rank);
  if (!spec::is_plain(adapted.architecture))
    throw_claim(Fault::config, fmt::format("init_from {}: its adapters belong to a model of one task", folder.string()),
                "init_from", "checkpoints, since the model has parts that only some tasks share", "adapters of peft",
                "leave it out");
  const AdapterList list = adapters_of(adapted);
  if (list.adapters.empty())
    throw_claim(Fault::config, fmt::format("init_from {}: it holds adapters, and the model has none", folder.string()),
                "lora", "the section lora", "none", "add lora, with the rank and the factor of these adapters");
  const spec::Parameter& up = *list.adapters.front().up;
  if (static_cast<double>(up.shape.back()) != rank || std::abs(up.scale - scale) > 1e-6 * scale)
    refuse_adapters(folder, fmt::format("its adapters have rank {} and are multiplied by {:.4g}", rank, scale),
                    fmt::format("rank {} and {:.4g}", up.shape.back(), up.scale),
                    fmt::format("{} and {:.4g}", rank, scale),
                    fmt::format("set lora.rank to {}, lora.alpha to {} and lora.rslora to {}", rank, alpha, by_root));
  return std::make_unique<PeftWeights>(files, folder, adapted);
}

}  // namespace argosy::interchange
