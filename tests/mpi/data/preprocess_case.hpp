#pragma once

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "core/lease.hpp"
#include "data/preprocess.hpp"
#include "data/token_shards.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/verses_to_preprocess.hpp"

namespace argosy::data {

/// preprocess on 300 verses, 64 of them in a shard.
class Preprocess : public testing::Test {
 protected:
  PreprocessReport run() {
    return run_preprocess(test::world(), files_, Log{test::world().rank(), LogLevel::error}, settings_);
  }

  /// What every rank must throw alike.
  std::string refusal(Fault fault) {
    return test::refusal(fault, [&] { (void)run(); });
  }
  Tokenizer read_tokenizer(spec::TokenLayout layout = spec::TokenLayout::marian) {
    return Tokenizer::read(files_, settings_.data.tokenizer, {layout});
  }
  TokenShards open_shards(const Tokenizer& tokenizer) {
    const Log log{test::world().rank(), LogLevel::error};
    const std::vector<CountedCorpus> corpora =
        online_corpora(test::world(), files_, log, settings_.data, settings_.cache.parent_path());
    return TokenShards::open(files_, settings_.data, tokenizer, Part::train, corpora);
  }
  std::string model_bytes() { return Files::system().read_text(settings_.data.tokenizer); }
  void leave_out_long_lines() {  // which makes other shards
    settings_.data.corpora[0].transforms.push_back({MaxLength{.source = 30, .target = 30}});
  }

  /// Names and contents of a folder as rank 0 sees them.
  std::map<std::string, std::string> contents(const Path& folder) {
    test::world().barrier("contents");
    std::map<std::string, std::string> found;
    for (const std::string& name : Files::system().list(folder))
      if (!is_lease_name(name)) found[name] = Files::system().read_text(folder / name);
    test::world().barrier("contents read");
    return found;
  }

  test::SharedFolder folder_;
  test::FaultyOs os_;
  Files files_{os_};
  PreprocessSettings settings_ = test::verses_to_preprocess(folder_, 300, 300, 64);
};

}  // namespace argosy::data
