#pragma once

#include <map>
#include <string>

#include "core/file.hpp"
#include "interchange/formats.hpp"
#include "interchange/model_bin.hpp"
#include "model/stored_model.hpp"

/// Reads CTranslate2 folders that `apps/export --format ct2` has written: the inverse of the format ct2 (FORMAT.md).
namespace argosy::interchange {

/// Whether the folder holds a model of CTranslate2, by its content.
[[nodiscard]] bool is_ctranslate2(const Files& files, const Path& folder);

/// What to do with weights that are integers and scales.
enum class Integers {
  refuse,  // they are not the weights of the model that was exported
  read,    // as the numbers that they stand for
};

/// Opens the model of a folder. All names, types and shapes are checked; the weights are read later. What the folder
/// does not say has its default: model.dropout, model.neftune_alpha, and model.max_positions where positions are
/// rotary. Not collective. Throws Error{usage} for integers, and for a model that Argosy does not have; Error{data} for
/// missing files, a vocabulary that is not the tokenizer's, and for variables that are missing, left over, or of
/// another shape or value, which are listed together; Error{corrupt}, Error{io}.
[[nodiscard]] model::StoredModel ctranslate2_model(const Files& files, const Path& folder,
                                                   Integers integers = Integers::refuse);

/// The files of a folder that list the pieces of its tokenizers. Borrows the tokenizer.
[[nodiscard]] std::map<std::string, const data::Tokenizer*> ct2_vocabularies(const data::Tokenizer& tokenizer,
                                                                             bool encoder_decoder);

/// The variables that the format ct2 has for a model. Borrows it. Throws Error{usage} where the format has a limit for
/// it.
[[nodiscard]] ModelBin ct2_variables(const model::StoredModel& model, Quantization quantization);

}  // namespace argosy::interchange
