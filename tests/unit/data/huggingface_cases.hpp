// What tools/compare_tokenizers has recorded: small tokenizers, and texts with the tokens that the Python package
// `tokenizers` makes of them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"
#include "places.hpp"
#include "unit/data/temporary_folder.hpp"

inline const std::vector<std::string>& recorded_names() {
    static const std::vector<std::string> names = {"gpt2",   "llama3", "qwen2",    "smollm",  "added",  "alone",
                                                   "prefix", "split0", "split1",   "split2",  "split3", "split4",
                                                   "split5", "split6", "unknown0", "unknown1"};
    return names;
}

inline std::string recorded_path(const std::string& name) {
    return lockstep::tests::source_path("tests/unit/data/tokenizers/" + name + ".json");
}

inline std::string recorded_json(const std::string& name) {
    const std::string text = read_file(recorded_path(name));
    BOOST_REQUIRE(!text.empty());
    return text;
}

inline std::unique_ptr<lockstep::data::Tokenizer> recorded_tokenizer(const std::string& name) {
    return lockstep::data::make_tokenizer("huggingface", {{"tokenizer.json", recorded_json(name)}});
}

struct RecordedCase {
    std::string text;
    std::vector<std::int32_t> tokens;
};

inline std::vector<RecordedCase> recorded_cases(const std::string& name) {
    std::ifstream file(lockstep::tests::source_path("tests/unit/data/tokenizers/" + name + ".jsonl"));
    std::vector<RecordedCase> cases;
    for (std::string line; std::getline(file, line);) {
        const auto json = nlohmann::json::parse(line);
        cases.push_back({json[0].get<std::string>(), json[1].get<std::vector<std::int32_t>>()});
    }
    BOOST_REQUIRE(cases.size() > 100u);
    return cases;
}
