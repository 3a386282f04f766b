#pragma once

#include <nlohmann/json.hpp>

namespace dynamiccl {

/// JSON Schema (draft-07) of experiment files, for editors: keys, types, vocabularies, what each
/// key means. What depends on more than one key (zip lengths, expressions, what belongs to which
/// backend) only the reader knows: `dynamiccl plan FILE` tells all of it.
nlohmann::ordered_json experiment_schema();

}  // namespace dynamiccl
