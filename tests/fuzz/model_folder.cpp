// A model in the Hugging Face layout. Parts: config.json, model.safetensors or, where it is not empty, the index of
// shards, whose one file is then the tensors.
#include <filesystem>

#include "checkpoint/stream.hpp"
#include "exchange/folder.hpp"
#include "fuzz/harness.hpp"
#include "model/parameter_description.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 3);
    const std::string& config = parts[0];
    const std::string &index = parts[1], &tensors = parts[2];
    const std::string folder = fuzz::folder() + "/model";
    std::filesystem::remove_all(folder);
    if (!config.empty()) fuzz::write_file("model/config.json", config);
    fuzz::write_file(index.empty() ? "model/model.safetensors" : "model/a.safetensors", tensors);
    if (!index.empty()) fuzz::write_file("model/model.safetensors.index.json", index);
    fuzz::judge(size, [&] {
        exchange::check_has_config(folder);
        const exchange::Folder read(folder);
        exchange::warn_of_unknown_keys(read);
        static_cast<void>(read.files().bytes());
        static_cast<void>(read.contents());
        const checkpoint::Source source = read.source();
        std::vector<float> values;
        for (const auto& parameter : model::describe_parameters(read.model(), model::whole_model(read.model()))) {
            const std::int64_t all = element_count(parameter.shape), count = std::min<std::int64_t>(all, 64);
            values.resize(static_cast<std::size_t>(count));
            source("parameters/" + parameter.name, all - count, count, values.data());
        }
    });
    return 0;
}
