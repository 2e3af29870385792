#pragma once

#include <boost/json/object.hpp>

#include "checkpoint/fields.hpp"
#include "checkpoint/manifest.hpp"

/// The sections of MANIFEST.json that say where each parameter lies (FORMAT.md §3): params, units and their ranks,
/// parallel.
namespace argosy::checkpoint {

[[nodiscard]] boost::json::object layout_sections(const Manifest& manifest);

/// Fills in weights, unit_names and spaces. Throws Error{corrupt} for sections that contradict each other, or /shards.
void read_layout_sections(const Fields& fields, Manifest& manifest);

}  // namespace argosy::checkpoint
