// A model in the Hugging Face layout. Parts: config.json; the index of shards, or none; tensors, which are the first
// shard or model.safetensors; the second shard, or pytorch_model.bin. Empty ones are not there.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/stream.hpp"
#include "exchange/folder.hpp"
#include "fuzz/harness.hpp"
#include "model/parameter_description.hpp"

using namespace lockstep;

namespace {

void write_unless_empty(const char* name, const std::string& bytes) {
    if (!bytes.empty()) fuzz::write_file(std::string("model/") + name, bytes);
}

// Elements of a parameter, sent back to where they are in the file.
void check_the_way_back(const exchange::Folder& folder, const exchange::Correspondence& names, std::int64_t first,
                        std::int64_t count, const float* values) {
    std::int64_t sent = 0;
    exchange::write_theirs(
        names, first, count, values, [&](std::int64_t their_first, std::int64_t run, const float* their_values) {
            std::vector<float> stored(static_cast<std::size_t>(run));
            exchange::read_elements(folder.place(names), their_first, run, stored.data());
            fuzz::require(std::memcmp(stored.data(), their_values, stored.size() * sizeof(float)) == 0,
                          "elements come from other places than they go to");
            sent += run;
        });
    fuzz::require(sent == count, "elements get lost on the way back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 4);
    const bool sharded = !parts[1].empty();
    const std::string folder = fuzz::folder() + "/model";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    write_unless_empty("config.json", parts[0]);
    write_unless_empty("model.safetensors.index.json", parts[1]);
    write_unless_empty(sharded ? "a.safetensors" : "model.safetensors", parts[2]);
    write_unless_empty(sharded ? "b.safetensors" : "pytorch_model.bin", parts[3]);
    fuzz::judge(size, [&] {
        exchange::check_has_config(folder);
        const exchange::Folder read(folder);
        exchange::warn_of_unknown_keys(read);
        fuzz::require(read.files().bytes() <= size, "the tensors have more bytes than the files");
        static_cast<void>(read.contents());
        const checkpoint::Source source = read.source();
        std::vector<float> values;
        for (const exchange::Correspondence& names : read.names()) {
            const std::int64_t all = element_count(names.shape), count = std::min<std::int64_t>(all, 64);
            values.resize(static_cast<std::size_t>(count));
            source("parameters/" + names.ours, all - count, count, values.data());
            check_the_way_back(read, names, all - count, count, values.data());
        }
    });
    return 0;
}
