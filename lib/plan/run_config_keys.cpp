#include <array>

#include "plan/run_config.hpp"

/// What the keys of a configuration mean, for --help, the schema and messages.
namespace argosy::comm {
std::span<const config::KeyText> key_texts(const CommConfig&) {
  static constexpr std::array<config::KeyText, 1> texts{
      {{"timeout_s", "seconds a rank waits for the others in one operation before the run ends with exit code 5"}}};
  return texts;
}
}  // namespace argosy::comm

namespace argosy::plan {

using config::KeyText;

std::span<const KeyText> key_texts(const LossConfig&) {
  static constexpr std::array<KeyText, 6> texts{{
      {"label_smoothing",
       "share of the target probability spread over all pieces of the tokenizer; default: 0 for language models, 0.1 "
       "for translation"},
      {"z", "weight of the squared log of the softmax denominator; 0: off"},
      {"error_norm_truncation",
       "tokens leave the loss, and the number that divides it, if the distance of their predicted probabilities from "
       "the label, at most √2, is above this; 0: off"},
      {"error_norm_truncation_after",
       "steps at the beginning in which all tokens stay, until the model tells likely from unlikely labels; for "
       "thresholds of 1 and less, which untrained models exceed at every token"},
      {"chunk_bytes", "most bytes of logits that exist at one time; 0: no limit"},
      {"normalise",
       "what the gradient of a component of a model with stacks is divided by: step: all tokens of the step, so that "
       "it "
       "is the gradient of the mean loss; component: the tokens of the tasks that have the component, so that those of "
       "rare languages learn as fast as others"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const PrecisionConfig&) {
  static constexpr std::array<KeyText, 2> texts{{
      {"mode",
       "fp32; bf16: weights and activations in bf16, fp32 master weights, gradients and moments; bf16_pure: no master "
       "weights, updates are rounded stochastically"},
      {"gradient_wire",
       "type in which gradients are sent, fp32 or bf16; or {\"inner\": TYPE, \"outer\": TYPE}: inside a node and "
       "between nodes"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const ShardingConfig&) {
  static constexpr std::array<KeyText, 5> texts{{
      {"zero_stage",
       "1: master weights and moments are sharded over all ranks; 2: gradients as well; 3: weights as well"},
      {"scope",
       "world: over all ranks; hybrid (zero_stage 3): weights and gradients are sharded inside a node, the rest over "
       "all ranks"},
      {"reduction",
       "exact: fp32 sums in a fixed order, so that bits do not depend on timing; fast: the backend's own order; "
       "elastic: "
       "the same bits for any number of ranks, at the cost of a reduction every micro-batch (for tests)"},
      {"recompute",
       "what the backward pass recomputes instead of keeping: none, activation (the input of the last matrix of the "
       "feed-forward part), full (all inner values of the feed-forward part), block (all values of a block except its "
       "input)"},
      {"accumulation_order",
       "depth_first: one micro-batch after the other; breadth_first: all micro-batches through one unit (embedding, "
       "block or head), then through the next"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const CheckpointConfig&) {
  static constexpr std::array<KeyText, 7> texts{{
      {"interval", "period between temporary checkpoints under run_dir/checkpoints"},
      {"max_checkpoints", "number of newest temporary checkpoints that are kept"},
      {"export_interval", "period between permanent checkpoints under run_dir/export; 0: one at the end"},
      {"export_state",
       "what permanent checkpoints hold: full (all state) or weights (no moments; training cannot resume from these)"},
      {"on_busy",
       "what to do if a temporary checkpoint is due while the last one is still being written: wait, or skip it"},
      {"max_failed_saves", "number of failed saves in a row that ends the run (exit code 4)"},
      {"verify",
       "which bytes are checked when a checkpoint is loaded: touched (blocks that are read), full (all; always so if a "
       "newer checkpoint is damaged), none (only the manifest and the digest tables)"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const ValidationSet&) {
  static constexpr std::array<KeyText, 6> texts{{
      {"source", "text file, or a list of them, as in data.corpora"},
      {"target", "its translation, line by line; absent for a language model, and for tsv and jsonl"},
      {"format", "text, tsv or jsonl; default: by the ending of the first name of source"},
      {"fields", "where records of tsv or jsonl have their texts"},
      {"documents", "language model: what a document is; default: as in the first corpus, or record for tsv and jsonl"},
      {"corpus",
       "pairs: name of the corpus whose prefixes (source_prefix, or the transform prefix) the lines get; required "
       "where "
       "the corpora differ in them"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const EarlyStopConfig&) {
  static constexpr std::array<KeyText, 3> texts{{
      {"metric", "one of validation.metrics, measured on the first set"},
      {"patience",
       "number of validations in a row without improvement that ends the run (exit code 0, after its last permanent "
       "checkpoint)"},
      {"min_delta", "smallest improvement over the best value that counts"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const CommandConfig&) {
  static constexpr std::array<KeyText, 2> texts{{
      {"run",
       "command for sh; ARGOSY_EXPORT is the folder of the export, ARGOSY_STEP its step; its last line is a JSON "
       "object "
       "of figures, such as {\"comet\": 0.81}"},
      {"limit_s", "seconds after which the command is killed"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const ValidationConfig&) {
  static constexpr std::array<KeyText, 9> texts{{
      {"interval", "period between validations; also at the end"},
      {"steps",
       "micro-batches of a set that each rank evaluates; default: 25 for a decoder, all for an encoder_decoder"},
      {"sets", "texts held out from training"},
      {"metrics",
       "loss, perplexity; bits_per_byte: of the text that the tokens spell; bleu, chrf, ter of greedy translations, as "
       "sacreBLEU computes them"},
      {"early_stop", "when a run that no longer improves ends; absent: it runs for schedule.length"},
      {"keep_best",
       "metrics of the first set; each time one improves, a checkpoint is saved and kept until the next improvement"},
      {"samples",
       "number of first lines of each set whose greedy translations are kept over time; default: 3 if a metric needs "
       "translations, else 0"},
      {"collapse",
       "warn if greedy translations of the first 64 lines of the first set are mostly alike, mostly one piece, or "
       "repeat themselves; default: true if a metric needs translations"},
      {"command",
       "a program of yours that rank 0 runs on each permanent checkpoint while training goes on; absent: none"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const StopConfig&) {
  static constexpr std::array<KeyText, 2> texts{{
      {"before_end_s",
       "seconds before the end of the allocation (ARGOSY_DEADLINE, set by the job scripts) at which training saves a "
       "checkpoint and ends with exit code 75; default: ARGOSY_STOP_NOTICE_S, else 60; earlier if two steps and saves "
       "take longer"},
      {"file",
       "when this file appears, training saves a checkpoint and ends with exit code 75; while it exists, training does "
       "not start, and job scripts do not requeue the run"},
  }};
  return texts;
}
std::span<const KeyText> key_texts(const RunConfig&) {
  static constexpr std::array<KeyText, 23> texts{{
      {"preset",
       "fine_tuning: other defaults for training that goes on from trained weights: optimizer.max_grad_norm 5 (not "
       "with "
       "adafactor), optimizer.skip.factor 10, loss.label_smoothing 0; keys that are set win"},
      {"run_dir", "folder of the run: lock, checkpoints, exports, metrics"},
      {"seed", "seed of initial weights, order of examples and dropout"},
      {"device", "cpu, cuda, or auto: cuda if a GPU is found"},
      {"data", "texts, tokenizer, token shards"},
      {"tasks", "directions between many languages, in the place of data.corpora: a corpus for each"},
      {"groups",
       "names of groups of languages, each with its codes, for stacks of the model with share source_group or "
       "target_group"},
      {"placement",
       "which ranks train which tasks of a model whose stacks only some of them share, and hold the components of "
       "these: "
       "everywhere (all ranks all tasks); auto (the predicted time of a step decides, then memory); or the ranks of "
       "each "
       "task, {\"en-fr\": [0, 1], …}, by canonical rank: node by node"},
      {"model", "shape of the model"},
      {"init_from",
       "weights that a new run begins with, with a fresh optimizer, schedule and data: the folder of a checkpoint, of "
       "a "
       "soup or of a Hugging Face model; or {from, components, allow_new}, or a list of these, of which later ones go "
       "first; a run that resumes does not read it"},
      {"lora", "adapters next to the matrices of the model of init_from; nothing else is trained (LoRA)"},
      {"freeze",
       "parameters that are not trained: patterns of their names, such as \"encoder/*\" or "
       "\"decoder/embeddings/weight\", or names of parts as in init_from.components"},
      {"loss", "the loss that training minimizes"},
      {"optimizer", "update rule and clipping"},
      {"schedule", "learning rate and length of training"},
      {"batch", "size of a step and of its micro-batches"},
      {"precision", "element types"},
      {"sharding", "what is sharded over ranks, and how gradients are reduced"},
      {"checkpoint", "when state is saved and what is kept"},
      {"validation", "when and on what the model is evaluated"},
      {"telemetry", "log lines and metrics"},
      {"comm", "communication between ranks"},
      {"stop", "how a run is asked to stop"},
  }};
  return texts;
}

}  // namespace argosy::plan
