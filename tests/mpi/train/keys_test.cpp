#include <fmt/ranges.h>

#include <limits>

#include "mpi/train/material.hpp"
#include "train/run_parts.hpp"

/// Keys of a configuration that change what a run computes: one that is not read leaves weights and figures as they
/// are.
namespace argosy::test {
namespace {

struct KeyCase {
  std::vector<std::string> base;
  std::vector<std::string> changes;  // each alone, on top of the base
};

std::vector<KeyCase> key_cases() {
  const std::string no_lr = "schedule.lr=0", no_warmup = "schedule.warmup=null";
  return {
      {{},
       {"seed=12",
        "preset=fine_tuning",
        R"(freeze=["encoder/*"])",
        "precision.mode=bf16",
        "precision.mode=bf16_pure",
        "loss.label_smoothing=0.3",
        "loss.z=0.1",
        "loss.error_norm_truncation=1.005",
        "optimizer.type=adafactor",
        "optimizer.type=muon",
        "optimizer.weight_decay=0.5",
        "optimizer.beta1=0.5",
        "optimizer.beta2=0.5",
        "optimizer.epsilon=0.1",
        "optimizer.max_grad_norm=0.01",
        "optimizer.update_clip=0.01",
        "optimizer.ema=0.5",
        "optimizer.skip.abs=1e-9",
        "schedule.lr=1e-3",
        "schedule.min_lr=1e-3",
        "schedule.warmup=2",
        "schedule.length=3",
        "schedule.decay_end=3",
        "schedule.style=cosine",
        "schedule.style=constant",
        "schedule.style=inv_sqrt",
        "schedule.style=wsd",
        "model.dropout=0.3",
        "model.neftune_alpha=5",
        "model.position_shift_max=20",
        "model.norm=rms_norm",
        "model.norm_position=pre",
        "model.norm_epsilon=0.1",
        "model.activation=swish",
        "model.bias=false",
        "model.output_bias=false",
        "model.tie_embeddings=false",
        "model.embedding_scale=false",
        "model.heads=4",
        "model.kv_heads=1",
        "model.head_size=8",
        "model.ff=64",
        "model.width=64",
        "model.vocab_multiple=8",
        "model.encoder.layers=2",
        "model.decoder.layers=2",
        "model.encoder.position=learned",
        "model.decoder.position=none",
        "validation.interval=2",
        R"(validation.metrics=["loss"])",
        "validation.samples=1",
        "validation.collapse=true",
        "telemetry.log_interval=2"}},
      {{"telemetry.log_interval=2"}, {"telemetry.log_offset=1"}},
      {{"model.width=64", "model.ff=64"}, {"optimizer.state=bf16", "optimizer.state=int8", "optimizer.state=int4"}},
      {{"model.bias=false"}, {"model.qkv_bias=true"}},
      {{"model.tie_embeddings=false"}, {"model.tie_inputs=true"}},
      {{"model.encoder.position=rope", "model.decoder.position=rope"},
       {"model.rope_theta=100", R"(model.rope_scaling={"factor": 4, "original_max_positions": 16})"}},
      {{"loss.error_norm_truncation=1.005"}, {"loss.error_norm_truncation_after=2"}},
      {{"optimizer.skip.factor=1.01", "optimizer.skip.after=0", "schedule.lr=0.3"},
       {"optimizer.skip.factor=0", "optimizer.skip.after=500"}},
      {{"optimizer.type=muon"},
       {"optimizer.momentum=0.5", "optimizer.beta1=0.5", "optimizer.beta2=0.5", "optimizer.epsilon=0.1",
        "optimizer.weight_decay=0.5", "optimizer.max_grad_norm=0.01"}},
      {{"optimizer.type=adafactor"},
       {"optimizer.update_clip=0.1", "optimizer.weight_decay=0.5", "optimizer.max_grad_norm=0.01"}},
      {{"optimizer.type=adafactor", "optimizer.relative_step=true", no_lr, no_warmup}, {"optimizer.warmup_init=true"}},
      {{"schedule.style=wsd", "schedule.cooldown=0.75"},
       {"schedule.cooldown=0.5", "schedule.cooldown_shape=linear", "schedule.cooldown_shape=cosine"}},
      {{"schedule.style=exponential", "schedule.gamma=0.5", "schedule.decay_period=2"},
       {"schedule.gamma=0.9", "schedule.decay_period=4"}},
      {{"schedule.style=noam", "schedule.noam_scale=0.01", no_lr}, {"schedule.noam_scale=0.02"}},
      {{"schedule.style=rsqrt", "schedule.rsqrt_scale=0.01", no_lr}, {"schedule.rsqrt_scale=0.02"}},
      {{"schedule.style=exponential_decay", "schedule.gamma=0.5", "schedule.start=2", "schedule.period=2", no_warmup},
       {"schedule.start=3", "schedule.period=1"}},
      {{"batch.micro_size=100"}, {"validation.steps=1"}},
  };
}

TEST(Keys, EachChangesWhatARunComputes) {
  const SharedFolder folder;
  int runs = 0;
  const auto outcome = [&](std::vector<std::string> set, const std::string& change) {
    const std::vector<std::string> small{"batch.global_size=1200", "batch.micro_size=300", "schedule.length=4",
                                         "schedule.warmup=1", "validation.interval=4"};
    set.insert(set.begin(), small.begin(), small.end());
    if (!change.empty()) set.push_back(change);
    const plan::RunConfig config = Material::get().config(folder / std::to_string(++runs), set);
    const std::int64_t last = train_run(config).figures.at("step").as_int64();
    std::string text;
    for (const std::string& digest : bits_of(Path(config.run_dir) / fmt::format("export/{:09}", last)))
      text += digest + "\n";
    for (const std::string& line : metrics_of(config.run_dir)) text += line + "\n";
    return text;
  };
  for (const KeyCase& each : key_cases()) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(each.base, " ")));
    const std::string base = outcome(each.base, "");
    EXPECT_EQ(outcome(each.base, ""), base);
    for (const std::string& change : each.changes) {
      const std::string changed = outcome(each.base, change);
      EXPECT_TRUE(world().rank() != 0 || changed != base) << change;
    }
  }
}

TEST(Keys, OfTheLossBecomeItsOptions) {
  const SharedFolder folder;
  const auto loss_of = [&](const std::vector<std::string>& set) {
    return in_context(world(), topology(Hierarchy::flat), Files::system(), [&](comm::Context& context) {
      return train::RunParts(context, Material::get().config(folder / "run", set)).loss;
    });
  };
  EXPECT_EQ(loss_of({}).label_smoothing, 0.1);
  EXPECT_EQ(loss_of({}).chunk_bytes, 256 << 20);
  EXPECT_EQ(loss_of({"loss.chunk_bytes=2000000"}).chunk_bytes, 2000000);
  EXPECT_EQ(loss_of({"loss.chunk_bytes=0"}).chunk_bytes, std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace argosy::test
