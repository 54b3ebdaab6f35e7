// What a run's folder keeps of matrix products. An input is the list alone; it gets the right checksum and its frame.
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "fuzz/harness.hpp"
#include "train/products_file.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(fuzz::text_of(data, size));
    const auto libraries = parse_json<nlohmann::ordered_json>(text);
    std::string framed = text;
    try {
        const std::string list = libraries.dump();
        framed = R"({"format": 1, "checksum": ")" + hash_text(hash64(list.data(), list.size())) +
                 R"(", "libraries": )" + text + "}";
    } catch (const nlohmann::json::exception&) {
        // Not UTF-8: the reader has to notice it too.
    }
    fuzz::judge(size + framed.size(), [&] {
        const train::ProductChoices choices = train::product_choices_from_json(framed);
        fuzz::require(train::product_choices_from_json(train::to_json(choices)) == choices,
                      "what is written reads back differently");
    });
    return 0;
}
