#include "train/products_file.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_number.hpp"
#include "base/json_text.hpp"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int file_format = 1;

std::string checksum_of(const Json& libraries) {
    const std::string text = libraries.dump();
    return hash_text(hash64(text.data(), text.size()));
}

}  // namespace

Json json_of(const ProductChoice& choice) {
    return {{"algorithm", choice.algorithm},
            {"seconds", choice.seconds},
            {"first_seconds", choice.first_seconds},
            {"proposals", choice.proposals}};
}

ProductChoice choice_of(const Json& json) {
    if (!is_whole<std::int64_t>(json.at("proposals")))
        throw damaged_error("its number of proposals is {}", json.at("proposals").dump());
    return {json.at("algorithm").get<std::string>(), json.at("seconds").get<double>(),
            json.at("first_seconds").get<double>(), json.at("proposals").get<std::int64_t>()};
}

std::string to_json(const ProductChoices& choices) {
    Json libraries = Json::object();
    for (const auto& [library, kinds] : choices)
        for (const auto& [kind, choice] : kinds) libraries[library][kind] = json_of(choice);
    const Json json = {{"format", file_format}, {"checksum", checksum_of(libraries)}, {"libraries", libraries}};
    return json.dump(2) + "\n";
}

ProductChoices product_choices_from_json(const std::string& text) {
    ProductChoices choices;
    try {
        const auto json = parse_json<Json>(text);
        const Json& libraries = json.at("libraries");
        if (json.at("format") != file_format)
            throw damaged_error("its format is {}, not {}", json.at("format").dump(), file_format);
        if (json.at("checksum") != checksum_of(libraries)) throw damaged_error("its checksum does not match");
        for (const auto& [library, kinds] : libraries.items())
            for (const auto& [kind, choice] : kinds.items()) choices[library][kind] = choice_of(choice);
    } catch (const Json::exception&) {
        throw damaged_error("it is not a list of matrix products");
    }
    return choices;
}

}  // namespace lockstep::train
