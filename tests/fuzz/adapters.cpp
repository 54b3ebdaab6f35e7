// Adapters in PEFT's layout, beside a model that is whole. Parts: adapter_config.json, the tensors.
#include "checkpoint/stream.hpp"
#include "exchange/peft.hpp"
#include "fuzz/harness.hpp"
#include "model/parameter_description.hpp"
#include "places.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::string base = tests::source_path("tests/hugging_face/llama");
    constexpr std::uint64_t base_bytes = 27000;
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 2);
    fuzz::write_file("adapters/adapter_config.json", parts[0]);
    fuzz::write_file("adapters/adapter_model.safetensors", parts[1]);
    fuzz::judge(size + base_bytes, [&] {
        const std::string folder = fuzz::folder() + "/adapters";
        const exchange::AdapterFolder read(folder, base);
        static_cast<void>(read.contents());
        const checkpoint::Source source = read.source();
        std::vector<float> values;
        for (const auto& parameter : model::describe_parameters(read.model(), model::whole_model(read.model()))) {
            const std::int64_t all = element_count(parameter.shape), count = std::min<std::int64_t>(all, 64);
            values.resize(static_cast<std::size_t>(count));
            source("parameters/" + parameter.name, all - count, count, values.data());
        }
        const auto config = exchange::adapter_config(read.base().architecture(), read.model(), base);
        fuzz::write_file("adapters/adapter_config.json", config.dump());
        const exchange::AdapterFolder again(folder, base);
        fuzz::require(again.model().adapters.rank == read.model().adapters.rank &&
                          again.model().adapters.dropout == read.model().adapters.dropout,
                      "what is written reads back differently");
    });
    fuzz::judge(size + base_bytes, [&] {
        // The base that the file names, which is seldom there.
        if (exchange::is_adapter_folder(fuzz::folder() + "/adapters"))
            exchange::AdapterFolder(fuzz::folder() + "/adapters");
    });
    return 0;
}
