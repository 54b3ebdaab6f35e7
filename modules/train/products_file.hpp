// products.json of a run folder: the chosen algorithms of matrix products.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::train {

struct ProductChoice {
    std::string algorithm;
    double seconds = 0, first_seconds = 0;  // of the chosen one, and of the library's first proposal
    std::int64_t proposals = 0;             // that were timed
    bool operator==(const ProductChoice&) const = default;
};
// By library and GPU, then by kind of product.
using ProductChoices = std::map<std::string, std::map<std::string, ProductChoice>>;

nlohmann::ordered_json json_of(const ProductChoice& choice);
// Damaged error, or nlohmann's exceptions, for what json_of did not make.
ProductChoice choice_of(const nlohmann::ordered_json& json);

std::string to_json(const ProductChoices& choices);
// Damaged error for a text that to_json did not write.
ProductChoices product_choices_from_json(const std::string& text);

}  // namespace lockstep::train
