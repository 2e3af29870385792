#include "spec/model_spec.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "spec/embeddings.hpp"
#include "spec/positions.hpp"

// Which σ and why. Embeddings d^-½: times √d they enter at variance 1, and a tied output gives logits of variance 1 to
// a normed state. Linear layers Xavier, √(2/(in + out)), taken for each stacked matrix (q, k, v; gate, up) by itself.
// In pre-norm models the last matrix of each residual branch is divided by √(branches), so that the sum of all branches
// starts at the variance of one; post-norm rescales after every branch and needs no such thing. T5 multiplies neither
// embeddings nor scores, and tied outputs by d^-½: its embeddings have σ 1, and its queries (d·D)^-½ (D: size of a
// head). Learned positions d^-½, as fairseq; T5's relative bias d^-½, as T5.
namespace argosy::spec {
namespace {

/// The parameters of one unit as they are listed. Names are CTranslate2's (README.md has the table).
class Parameters {
 public:
  explicit Parameters(const Architecture& architecture) : is_(architecture) {}

  void norm(const std::string& name) {
    add(name + "/gamma", {is_.width}, Role::norm_scale, {.constant = 1});
    if (is_.norm == Norm::layer_norm) add(name + "/beta", {is_.width}, Role::norm_shift, {});
  }
  void linear(const std::string& name, Role role, std::int64_t out, std::int64_t in, std::vector<Part> parts = {}) {
    const std::int64_t own = parts.empty() ? out : parts.front().rows;
    double deviation = std::sqrt(2 / (static_cast<double>(in) + static_cast<double>(own)));
    if (ends_branch(role)) deviation /= branch_scale_;
    const bool queries = role == Role::attention_query || role == Role::attention_qkv;
    if (queries && unscaled_) {
      const double of_query = 1 / std::sqrt(static_cast<double>(is_.width * is_.head_size));
      (parts.empty() ? deviation : parts.front().deviation.emplace()) = of_query;
    }
    add(name + "/weight", {out, in}, role, {.deviation = deviation}, parts);
    if (is_.bias || (is_.qkv_bias && (queries || role == Role::attention_key_value)))
      add(name + "/bias", {out}, Role::linear_bias, {}, std::move(parts));
  }
  void by_id(const std::string& name, Role role) {
    const bool t5 = is_.vocabulary.layout == TokenLayout::t5 && role != Role::head_weight;
    add(name, {is_.vocabulary.rows, is_.width}, role,
        {.deviation = t5 ? 1 : by_width(), .zero_row = is_.vocabulary.zero_row()});
  }
  /// The learned positions of a side, if it has some.
  void positions(bool encoder) {
    if (is_.position(encoder) != Position::learned) return;
    add((encoder ? "encoder" : "decoder") + std::string("/position_encodings/encodings"),
        {is_.max_positions, is_.width}, Role::position_table, {.deviation = by_width()});
  }
  void relative_bias(const std::string& side) {
    add(side + "/layer_0/self_attention/relative_attention_bias", {relative_buckets, is_.heads}, Role::relative_bias,
        {.deviation = by_width()});
  }
  void head_bias(const std::string& name = "decoder/projection/bias") {
    if (!is_.output_bias) return;
    add(name, {is_.vocabulary.rows}, Role::head_bias, {.dead_from = is_.vocabulary.pieces});
  }
  void block(const std::string& layer, bool is_decoder) {
    const bool cross = is_decoder && is_.type == ModelType::encoder_decoder;
    const std::int64_t query = is_.heads * is_.head_size, key = is_.kv_heads * is_.head_size;
    const std::int64_t branches = is_decoder ? is_.decoder_layers * (cross ? 3 : 2) : is_.encoder_layers * 2;
    unscaled_ = is_.position(!is_decoder) == Position::t5;
    branch_scale_ = is_.norm_position == NormPosition::pre ? std::sqrt(static_cast<double>(branches)) : 1;
    norm(layer + "/self_attention/layer_norm");
    linear(layer + "/self_attention/linear_0", Role::attention_qkv, query + 2 * key, is_.width,
           {{"query", query}, {"key", key}, {"value", key}});
    linear(layer + "/self_attention/linear_1", Role::attention_out, is_.width, query);
    if (cross) {
      norm(layer + "/attention/layer_norm");
      linear(layer + "/attention/linear_0", Role::attention_query, query, is_.width);
      linear(layer + "/attention/linear_1", Role::attention_key_value, 2 * key, is_.width,
             {{"key", key}, {"value", key}});
      linear(layer + "/attention/linear_2", Role::attention_out, is_.width, query);
    }
    norm(layer + "/ffn/layer_norm");
    const bool gated = is_gated(is_.activation);
    linear(layer + "/ffn/linear_0", Role::ffn_in, gated ? 2 * is_.ff : is_.ff, is_.width,
           gated ? std::vector<Part>{{"gate", is_.ff}, {"up", is_.ff}} : std::vector<Part>{});
    linear(layer + "/ffn/linear_1", Role::ffn_out, is_.width, is_.ff);
  }
  /// What has been listed since the last call.
  std::vector<Parameter> take() { return std::exchange(list_, {}); }

 private:
  [[nodiscard]] double by_width() const { return 1 / std::sqrt(static_cast<double>(is_.width)); }
  static bool ends_branch(Role role) { return role == Role::attention_out || role == Role::ffn_out; }
  void add(std::string name, std::vector<std::int64_t> shape, Role role, Initial initial,
           std::vector<Part> parts = {}) {
    const bool decays = shape.size() > 1 && role != Role::relative_bias;
    list_.push_back({{std::move(name), std::move(shape), decays}, role, initial, std::move(parts)});
  }

  const Architecture& is_;
  double branch_scale_ = 1;
  bool unscaled_ = false;  // queries and keys of the block
  std::vector<Parameter> list_;
};

/// The components of a stack with their tasks, in the order in which tasks first use them.
std::vector<Component> components_of(const std::string& side, Share share, const Sharing& sharing) {
  if (share == Share::all) return {{}};
  std::vector<Component> found;
  std::map<std::string, std::size_t> places;
  for (const Task& task : sharing.tasks) {
    require_group(Fault::config, share, task, sharing);
    const std::string name = component_name(side, share, task, sharing);
    const auto [known, is_new] = places.emplace(name, found.size());
    if (is_new) found.push_back({name, {}});
    found[known->second].tasks.push_back(task.name);
  }
  ARGOSY_CHECK(!found.empty(), "a stack that is not shared by all, in a model without tasks");
  return found;
}

/// The number of a component, which may have blocks of several stacks.
std::size_t component_named(std::vector<Component>& components, const std::string& name,
                            const std::vector<std::string>& tasks) {
  const auto known = std::ranges::find(components, name, &Component::name);
  if (known == components.end()) {
    components.push_back({name, tasks});
    return components.size() - 1;
  }
  if (known->tasks != tasks)
    throw_error(Fault::config, "groups", "names that are no codes of languages", fmt::format("two components {}", name),
                "rename the group or the language");
  return static_cast<std::size_t>(known - components.begin());
}

using Names = std::vector<std::string>;

/// The names of tasks by the component that has one of their matrices.
std::map<std::string, Names> users_of_tables(const Architecture& is, const Sharing& sharing) {
  std::map<std::string, Names> users;
  for (const Task& task : sharing.tasks) {
    for (const VisitKind kind : kinds_by_language) {
      Names& tasks = users[table_name(is, kind, task)];
      if (tasks.empty() || tasks.back() != task.name) tasks.push_back(task.name);
    }
  }
  return users;
}

/// Puts a unit that all tasks share first, if there is one: all ranks have it under any placement.
void begin_with_shared(ModelSpec& spec) {
  const auto found = std::ranges::find(spec.units, std::size_t{0}, &Unit::component);
  if (found == spec.units.end()) return;
  const auto place = static_cast<std::size_t>(found - spec.units.begin());
  std::rotate(spec.units.begin(), found, found + 1);
  for (Visit& visit : spec.visits)
    for (std::size_t& unit : visit.units) unit = unit == place ? 0 : unit < place ? unit + 1 : unit;
}

/// users: of each visit, the tasks that pass it; none: all pass it.
void find_routes(ModelSpec& spec, const std::vector<Names>& users) {
  std::vector<std::size_t> of_all;
  std::map<std::string_view, std::vector<std::size_t>> route_of;
  for (std::size_t v = 0; v < spec.visits.size(); ++v) {
    if (users[v].empty()) of_all.push_back(v);
    for (const std::string& task : users[v]) route_of[task].push_back(v);
  }
  std::map<std::vector<std::size_t>, std::size_t> known;
  const auto add = [&](std::vector<std::size_t> route) {
    route.insert(route.end(), of_all.begin(), of_all.end());
    std::ranges::sort(route);
    const auto [found, is_new] = known.emplace(route, spec.routes.size());
    if (is_new) spec.routes.push_back(std::move(route));
    return found->second;
  };
  for (const Task& task : spec.sharing.tasks) spec.route_of[task.name] = add(std::move(route_of[task.name]));
  if (spec.sharing.tasks.empty()) add({});
}

}  // namespace

bool Parameter::is_by_id() const noexcept {
  return role == Role::source_embedding || role == Role::target_embedding || role == Role::head_weight ||
         role == Role::head_bias;
}

bool is_of(const Parameter& parameter, std::string_view name) {
  constexpr std::string_view shared = ".all";
  const std::string_view own = std::string_view(parameter.name).substr(0, parameter.name.find('/'));
  const bool by_language = own.find('.') != std::string_view::npos;
  if (parameter.is_by_id()) return name == "embeddings" || (by_language && own == name);
  if (name == "embeddings") return false;
  if (name.ends_with(shared)) return own == name.substr(0, name.size() - shared.size());
  return own == name || (name.find('.') == std::string_view::npos && own.starts_with(std::string(name) + "."));
}

ModelSpec::ModelSpec(const Architecture& of, Sharing with) : architecture(of), sharing(std::move(with)) {
  const bool translation = of.type == ModelType::encoder_decoder, pre = of.norm_position == NormPosition::pre;
  Parameters list(of);
  const auto head_parameters = [&] {
    list.head_bias();
    if (pre) list.norm("decoder/layer_norm");
  };
  const bool one_input = translation && of.tie_inputs, by_language = of.embeddings_by_language;
  std::vector<Names> users;                   // of visits
  std::map<std::string, std::size_t> tables;  // units by name, of embeddings by language
  const std::map<std::string, Names> users_of = by_language ? users_of_tables(of, sharing) : decltype(users_of){};
  const auto add_visit = [&](std::string name, VisitKind kind, std::size_t unit, std::int64_t layer = 0,
                             Names tasks = {}) {
    visits.push_back({.name = std::move(name),
                      .kind = kind,
                      .layer = layer,
                      .units = {unit},
                      .reads_memory = translation && kind == VisitKind::decoder_block,
                      .writes_memory = translation && kind == VisitKind::target});
    users.push_back(std::move(tasks));
  };
  const auto target_unit = [&] {
    list.by_id("decoder/embeddings/weight", Role::target_embedding);
    if (one_input) list.positions(true);
    list.positions(false);
    if (translation && pre) list.norm("encoder/layer_norm");
    if (of.tie_embeddings) head_parameters();
    units.push_back({translation && !one_input ? "target_embedding" : "embedding", list.take()});
  };
  const auto shared_unit = [&] {
    list.positions(true);
    list.positions(false);
    if (pre) {
      list.norm("encoder/layer_norm");
      list.norm("decoder/layer_norm");
    }
    if (std::vector<Parameter> parameters = list.take(); !parameters.empty())
      units.push_back({"shared", std::move(parameters)});
  };
  const auto add_tables = [&](VisitKind kind) {
    for (const Task& task : sharing.tasks) {
      const std::string name = table_name(of, kind, task);
      if (!tables.emplace(name, units.size()).second) continue;
      const bool is_head = kind == VisitKind::head;
      list.by_id(name + "/weight", is_head                                       ? Role::head_weight
                                   : kind == VisitKind::source && !of.tie_inputs ? Role::source_embedding
                                                                                 : Role::target_embedding);
      if (is_head || (of.tie_embeddings && (one_input || kind == VisitKind::target))) list.head_bias(name + "/bias");
      components.push_back({name, users_of.at(name)});
      units.push_back({.name = name, .parameters = list.take(), .component = components.size() - 1});
    }
  };
  const auto add_visits_by_language = [&](const char* name, VisitKind kind) {
    std::map<std::string, std::size_t> known;  // by language
    for (const Task& task : sharing.tasks) {
      const auto [place, is_new] = known.emplace(language_of(kind, task), visits.size());
      if (is_new) {
        add_visit(fmt::format("{}.{}", name, place->first), kind, tables.at(table_name(of, kind, task)));
        if (units.front().name == "shared") visits.back().units.push_back(0);
      }
      users[place->second].push_back(task.name);
    }
  };
  const auto add_blocks = [&](const std::string& side, VisitKind kind, std::vector<StackConfig> stacks,
                              std::int64_t layers) {
    const std::size_t shared = units.size();
    const bool shares = of.position(kind == VisitKind::encoder_block) == Position::t5;
    if (shares) {
      list.relative_bias(side);
      units.push_back({fmt::format("{}.relative_bias", side), list.take()});
    }
    if (stacks.empty()) stacks = {{.layers = layers}};
    for (std::int64_t first = 0; const StackConfig& stack : stacks) {
      for (const auto& [name, tasks] : components_of(side, stack.share, sharing)) {
        const std::size_t component = name.empty() ? 0 : component_named(components, name, tasks);
        const std::string& of_side = name.empty() ? side : name;
        for (std::int64_t i = first; i < first + stack.layers; ++i) {
          const std::string prefix = fmt::format("{}/layer_{}", of_side, i);
          list.block(prefix, kind == VisitKind::decoder_block);
          units.push_back({.name = fmt::format("{}.{}", of_side, i),
                           .parameters = list.take(),
                           .is_block = true,
                           .component = component});
          add_visit(units.back().name, kind, units.size() - 1, i, tasks);
          visits.back().prefix = prefix;
          if (shares) visits.back().units.push_back(shared);
        }
      }
      first += stack.layers;
    }
  };
  components.push_back({.name = "all", .tasks = {}});
  for (const Task& task : sharing.tasks) components.front().tasks.push_back(task.name);

  if (by_language) {
    shared_unit();
    add_tables(VisitKind::source);
    if (one_input) add_tables(VisitKind::target);
    add_visits_by_language("source", VisitKind::source);
  } else if (translation) {
    if (one_input) {
      target_unit();
    } else {
      list.by_id("encoder/embeddings_0/weight", Role::source_embedding);
      list.positions(true);
      units.push_back({"source_embedding", list.take()});
    }
    add_visit("source", VisitKind::source, 0);
  }
  if (translation) add_blocks("encoder", VisitKind::encoder_block, of.encoder_stacks, of.encoder_layers);
  if (by_language) {
    if (!one_input) add_tables(VisitKind::target);
    add_visits_by_language("target", VisitKind::target);
  } else {
    if (!one_input) target_unit();
    add_visit("target", VisitKind::target, one_input ? 0 : units.size() - 1);
  }
  const std::size_t target = visits.back().units.front();
  add_blocks("decoder", VisitKind::decoder_block, of.decoder_stacks, of.decoder_layers);
  if (by_language) {
    if (!of.tie_embeddings) add_tables(VisitKind::head);
    add_visits_by_language("head", VisitKind::head);
  } else if (of.tie_embeddings) {
    add_visit("head", VisitKind::head, target);
  } else {
    list.by_id("decoder/projection/weight", Role::head_weight);
    head_parameters();
    units.push_back({"head", list.take()});
    add_visit("head", VisitKind::head, units.size() - 1);
  }
  begin_with_shared(*this);
  find_routes(*this, users);
}

std::set<std::size_t> ModelSpec::components_on(std::size_t route) const {
  std::set<std::size_t> found;
  for (const std::size_t visit : routes[route])
    for (const std::size_t unit : visits[visit].units) found.insert(units[unit].component);
  return found;
}

std::set<std::size_t> ModelSpec::idle_components(std::span<const int> passed) const {
  std::set<std::size_t> idle;
  for (std::size_t component = 1; component < components.size(); ++component) idle.insert(component);
  for (const int route : passed) {
    if (route < 0) continue;
    for (const std::size_t component : components_on(static_cast<std::size_t>(route))) idle.erase(component);
  }
  return idle;
}

std::int64_t block_count(const Architecture& architecture, const Sharing& sharing) {
  std::int64_t blocks = 0;
  for (const auto& [side, stacks, layers] :
       {std::tuple{"encoder", &architecture.encoder_stacks, architecture.encoder_layers},
        {"decoder", &architecture.decoder_stacks, architecture.decoder_layers}}) {
    std::map<Share, std::int64_t> components;
    if (stacks->empty()) blocks += layers;
    for (const StackConfig& stack : *stacks) {
      const auto known = components.find(stack.share);
      const std::int64_t count =
          known != components.end() ? known->second : std::ssize(components_of(side, stack.share, sharing));
      components.emplace(stack.share, count);
      blocks += stack.layers * count;
    }
  }
  return blocks;
}

std::vector<Matrix> Unit::matrices() const {
  std::vector<Matrix> all;
  for (const Parameter& parameter : parameters) {
    const std::int64_t columns = parameter.numel() / parameter.shape.front();
    if (parameter.parts.empty())
      all.push_back(
          {.name = parameter.name, .parameter = &parameter, .rows = parameter.shape.front(), .columns = columns});
    for (std::int64_t begin = 0; const Part& part : parameter.parts) {
      all.push_back({parameter.name + "/" + part.name, &parameter, begin, part.rows, columns});
      begin += part.rows * columns;
    }
  }
  return all;
}

std::vector<StateTensor> Unit::kept(const StateOf& state) const {
  std::vector<StateTensor> tensors = state(*this);
  if (frozen) std::erase_if(tensors, [](const StateTensor& tensor) { return tensor.name != weights_tensor; });
  return tensors;
}

std::vector<partition::ParamSpec> Unit::flat(const StateTensor& tensor) const {
  if (tensor.is_flat()) return flat();
  std::vector<partition::ParamSpec> vectors;
  for (const Matrix& matrix : matrices())
    vectors.push_back({matrix.name + "/" + tensor.name,
                       {tensor.extent == Extent::row ? matrix.rows : matrix.columns},
                       /*decay=*/false});
  return vectors;
}

std::vector<OwnedPart> owned_parts(const partition::FlatSpace& space, const StateTensor& tensor) {
  const std::vector<std::int64_t> without_decay = space.owned_before(space.decay_begin()),
                                  all = space.owned_before(space.padded_size());
  std::vector<OwnedPart> parts;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::int64_t begin = tensor.covers == Covers::with_decay ? without_decay[rank] : 0;
    const std::int64_t end = tensor.covers == Covers::without_decay ? without_decay[rank] : all[rank];
    parts.push_back({begin, (end - begin) / tensor.block});
  }
  return parts;
}

const Parameter& Unit::parameter(const std::string& name_of_it) const {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name_of_it; });
  ARGOSY_CHECK(found != parameters.end(), "no parameter {} in {}", name_of_it, name);
  return *found;
}

std::string text_of(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace argosy::spec
