#pragma once

#include <string>

#include "core/error.hpp"
#include "spec/model_spec.hpp"

/// Which component a task has of what a model shares by language or group, for .cpp files of this module.
namespace argosy::spec {

/// The visits that a model with embeddings by language (EmbeddingShare) has once for each language.
inline constexpr VisitKind kinds_by_language[] = {VisitKind::source, VisitKind::target, VisitKind::head};

/// The language that such a visit reads or writes.
[[nodiscard]] inline const std::string& language_of(VisitKind kind, const Task& task) {
  return kind == VisitKind::source ? task.source : task.target;
}

/// The component that has the matrix of such a visit, "embeddings.fr".
[[nodiscard]] std::string table_name(const Architecture& is, VisitKind kind, const Task& task);

/// Throws if the component of a task is that of a group of languages, and its language is in none.
void require_group(Fault fault, Share share, const Task& task, const Sharing& sharing);

}  // namespace argosy::spec
