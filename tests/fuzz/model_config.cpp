// config.json of a model in the Hugging Face layout: what is read is written and read again.
#include "exchange/architecture.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const exchange::Json config = exchange::parse_json_object(text, "config.json");
        std::vector<std::string> unknown;
        const exchange::Architecture& architecture = exchange::architecture_of(config, "config.json");
        const config::ModelDescription model = exchange::read_model(architecture, config, "config.json", unknown);
        constexpr std::int64_t most_layers = 64;  // more names than that are only more of the same
        if (model.layers <= most_layers) exchange::correspondences(architecture, model);
        exchange::write_model(model);
    });
    return 0;
}
