#include "mpi/train/late.hpp"
#include "mpi/train/rank.hpp"
#include "mpi/train/step_bytes.hpp"

/// Components that only some of the ranks share: two languages, each with an encoder of its own on half of the ranks,
/// and one decoder on all of them.
namespace argosy::test {
namespace {

constexpr std::size_t languages = 2;

/// The model as the ranks of a language hold it: the units of all languages, and the visits of this one. The second
/// language's encoder has one block less than the first one's, so that the plans of their ranks differ.
spec::ModelSpec model_of(std::size_t language, bool tied) {
  spec::ModelConfig config =
      model_config({.width = 32, .ff = 48, .heads = 2, .encoder_layers = 2, .decoder_layers = 2});
  config.max_positions = 32;
  config.dropout = 0;
  config.tie_embeddings = tied;
  spec::ModelSpec spec(spec::resolve(config, 23));
  const auto is_encoder = [](const spec::Visit& visit) { return visit.kind == spec::VisitKind::encoder_block; };
  spec.components = {{"all", {}}, {"encoder.first", {}}, {"encoder.second", {}}};
  const std::size_t shared = spec.units.size();
  for (const spec::Visit& visit : spec.visits) {
    if (!is_encoder(visit)) continue;
    spec.units[visit.units.front()].component = 1;
    spec::Unit copy = spec.units[visit.units.front()];
    copy.name += ".second";
    copy.component = 2;
    spec.units.push_back(copy);
  }
  if (language == 0) return spec;
  for (spec::Visit& visit : spec.visits)
    if (is_encoder(visit)) visit.units.front() = shared + static_cast<std::size_t>(visit.layer);
  std::erase_if(spec.visits, [&](const spec::Visit& visit) { return is_encoder(visit) && visit.layer == 0; });
  spec.routes.front().resize(spec.visits.size());
  return spec;
}

class ComponentsOnRanks : public OnRanks {
 protected:
  /// Two micro-batches a rank.
  [[nodiscard]] std::vector<data::Batch> batches(std::uint64_t step) const {
    return uneven_batches(model_of(0, true).architecture, 2 * layout().world(), step);
  }
  /// Those of one language; of the others, the number of tokens. Even ranks have the first language, so that one rank
  /// has no other.
  [[nodiscard]] std::vector<data::Batch> only(std::vector<data::Batch> batches, std::size_t language) const {
    for (std::size_t j = 0; j < batches.size(); ++j) {
      if (j % static_cast<std::size_t>(layout().world()) % languages == language) continue;
      const std::int64_t tokens = batches[j].tgt_tokens;
      batches[j] = {};
      batches[j].tgt_tokens = tokens;
    }
    return batches;
  }
  [[nodiscard]] std::unique_ptr<Rank> shared(const Training& training, bool tied) {
    return shared(training, tied, *collectives_, *collectives_of_part_);
  }
  [[nodiscard]] std::unique_ptr<Rank> shared(const Training& training, bool tied, comm::Collectives& of_all,
                                             comm::Collectives& of_part) {
    std::vector<std::optional<comm::Group>> parts(languages);
    parts[language_].emplace(comm::Group{part_.layout(), part_.canonical_rank(), of_part});
    return std::make_unique<Rank>(model_of(language_, tied), layout(), me(), of_all, training, parts);
  }
  /// One rank that trains one language.
  [[nodiscard]] std::unique_ptr<Rank> alone(const Training& training, std::size_t language, bool tied) {
    std::vector<std::optional<comm::Group>> parts(languages);
    parts[language].emplace(comm::Group{one_, 0, nobody()});
    return std::make_unique<Rank>(model_of(language, tied), one_, 0, nobody(), training, parts);
  }

  const std::size_t language_ = static_cast<std::size_t>(me()) % languages;
  const comm::Topology part_ = comm::Topology::discover(world().split(me() % static_cast<int>(languages), me()),
                                                        std::to_string(topology_.node()));
  const std::unique_ptr<comm::Collectives> collectives_of_part_ = comm::make_mpi_collectives(part_);
  const partition::Layout one_{};
};

TEST_P(ComponentsOnRanks, HaveTheGradientOfTheWholeStep) {
  for (const plan::Scheme scheme : all_schemes) {
    for (const plan::AccumulationOrder order :
         {plan::AccumulationOrder::depth_first, plan::AccumulationOrder::breadth_first}) {
      for (const bool tied : {true, false}) {
        if (tied != (order == plan::AccumulationOrder::depth_first) && GetParam() != Hierarchy::uneven) continue;
        Training training{.scheme = scheme, .order = order};
        training.optimizer.max_grad_norm = 0;
        SCOPED_TRACE(text_of(training) + (tied ? " tied" : ""));
        const std::unique_ptr<Rank> many = shared(training, tied);
        for (std::uint64_t s = 0; s < 2; ++s) {  // without updates: the same weights at each step
          if (s > 0) many->poison();
          const train::StepResult result = many->step(batches(s), 0);
          std::vector<double> expected(many->weights().size());
          double loss = 0;
          for (std::size_t language = 0; language < languages; ++language) {
            const auto one = alone({.optimizer = training.optimizer}, language, tied);
            loss += one->step(only(batches(s), language), 0).loss_sum;
            const std::vector<double> gradient = one->gradient();
            ASSERT_EQ(gradient.size(), expected.size());
            for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += gradient[i];
          }
          double squares = 0;
          for (const double g : expected) squares += g * g;
          EXPECT_NEAR(result.loss_sum, loss, 1e-5 * loss);
          EXPECT_NEAR(result.grad_norm, std::sqrt(squares), 1e-4 * std::sqrt(squares)) << "each component counts once";
          EXPECT_LT(distance(many->gradient(), expected), 1e-3);
        }
      }
    }
  }
}

TEST_P(ComponentsOnRanks, LeaveOneOutThatNobodyNeeds) {
  for (const plan::Scheme scheme : all_schemes) {
    SCOPED_TRACE(static_cast<int>(scheme));
    constexpr double lr = 1e-3;
    const std::unique_ptr<Rank> many = shared({.scheme = scheme}, true);
    const auto of_second = [&](const std::vector<double>& all) {
      std::vector<double> part;
      std::ptrdiff_t begin = 0;
      for (const model::Unit& unit : many->model().units()) {
        const auto end = begin + unit.space().parameters();
        if (unit.name() == "encoder.1.second") part.assign(all.begin() + begin, all.begin() + end);
        begin = end;
      }
      return part;
    };
    const std::vector<double> initial = many->weights();
    many->idle = {2};
    for (std::uint64_t s = 0; s < 2; ++s) (void)many->step(only(batches(s), 0), lr);
    const std::vector<double> trained = many->weights();
    EXPECT_EQ(of_second(trained), of_second(initial));
    EXPECT_GT(largest_change(initial, trained), lr);
    if (layout().world() == 1) continue;
    many->idle = {};
    (void)many->step(batches(2), lr);
    EXPECT_NEAR(largest_change(of_second(trained), of_second(many->weights())), lr, 1e-3 * lr)
        << "Adam's first update is lr wherever the gradient is not tiny; its third is not";
  }
}

TEST_P(ComponentsOnRanks, ComputeBesideLateCollectivesToTheSameBits) {
  if (GetParam() != Hierarchy::flat && GetParam() != Hierarchy::uneven) return;
  const auto weights = [&](const Training& training, comm::Collectives& of_all, comm::Collectives& of_part) {
    const std::unique_ptr<Rank> rank = shared(training, false, of_all, of_part);
    for (std::uint64_t s = 0; s < 2; ++s) {
      rank->poison();
      EXPECT_FALSE(rank->step(batches(s), 1e-3).skipped);
    }
    return rank->weights();
  };
  for (const plan::Scheme scheme : all_schemes) {
    const Training training{.scheme = scheme};
    SCOPED_TRACE(text_of(training));
    const std::vector<double> expected = weights(training, *collectives_, *collectives_of_part_);
    Late late{topology_, *collectives_}, late_in_part{part_, *collectives_of_part_};
    EXPECT_TRUE(weights(training, late, late_in_part) == expected);
  }
}

TEST_P(ComponentsOnRanks, SendWhatTheFormulasSayInEachGroup) {
  for (const plan::Scheme scheme : all_schemes) {
    for (const plan::AccumulationOrder order :
         {plan::AccumulationOrder::depth_first, plan::AccumulationOrder::breadth_first}) {
      const Training training{.scheme = scheme, .order = order};
      SCOPED_TRACE(text_of(training));
      const auto of_all = comm::make_mpi_collectives(topology_), of_part = comm::make_mpi_collectives(part_);
      const std::unique_ptr<Rank> rank = shared(training, false, *of_all, *of_part);
      (void)rank->step(batches(1), 1e-3);
      const spec::ModelSpec& spec = rank->model().spec();
      const plan::PlanShape units = plan::plan_shape(spec, layout());
      const auto bytes = [&](std::size_t component, int in_group) {
        return bytes_by_formula(*rank, units, training, 2, [&, component, in_group](std::size_t unit) {
          const bool is_visited = std::ranges::count(units.visit_units, std::vector{unit}) > 0 || component == 0;
          return spec.units[unit].component == component && is_visited ? std::optional(in_group) : std::nullopt;
        });
      };
      EXPECT_EQ(StepBytes::counted(*of_all), bytes(0, me()));
      EXPECT_EQ(StepBytes::counted(*of_part), bytes(1 + language_, part_.canonical_rank()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, ComponentsOnRanks, testing::ValuesIn(hierarchies()), by_name);

}  // namespace
}  // namespace argosy::test
