// How a run is laid out over its ranks: the process grid, and which blocks each piece of the pipeline has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_description.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::layout {

// The grid that the description asks for on so many ranks; parallel.data = "auto" takes what is left. A grid that is
// not possible is a usage error that says why and names the nearest possible ones.
config::Grid choose_grid(const config::RunDescription& description, std::int64_t ranks);

// Why this model and batch cannot be laid out so; "" if they can. The one rule for runs and for what a plan searches.
std::string why_impossible(const config::RunDescription& description, const config::Grid& grid);

// The most ranks, `limit` at most, that the description's grid can be laid out on; 0 if there is none.
std::int64_t most_ranks(const config::RunDescription& description, std::int64_t limit);

// The model cut into pieces of whole blocks, as even in work as whole blocks allow: a block's and the head's
// arithmetic, and the embedding's memory traffic counted as the arithmetic that takes as long.
std::vector<model::StageRange> cut_model(const config::ModelDescription& model, std::int64_t length,
                                         std::int64_t pieces);

std::vector<std::int64_t> divisors(std::int64_t number);  // ascending

}  // namespace lockstep::layout
