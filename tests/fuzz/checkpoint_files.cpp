#include "fuzz/checkpoint_files.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/open_file.hpp"
#include "checkpoint/layout.hpp"
#include "fuzz/harness.hpp"
#include "fuzz/hdf5_edits.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::fuzz {
namespace {

const std::string checksums = "checksums/";

checkpoint::Contents contents_with(const std::string& optimizer) {
    checkpoint::Contents contents;
    contents.state.optimizer = optimizer;
    contents.state.step = 7;
    contents.state.length = 16;
    contents.state.processor = "a processor";
    contents.state.commit = "0123456789ab";
    contents.run_description = "[run]\nname = \"small\"\n[model]\nwidth = 4\nlayers = 1\n";
    contents.tokenizer_kind = "bytes";
    return contents;
}

std::string whole(const checkpoint::Contents& contents) {
    const std::string path = write_file("whole.h5", "");
    checkpoint::write_header(path, contents, small_tensors());
    forge_checksums(path);
    return read_file(path);
}

std::string header_text(const hdf5::File& file) {
    std::string text;
    for (const std::string object : {"/", "/state", "/checksums"}) {
        std::vector<std::string> names = file.attributes(object);
        std::sort(names.begin(), names.end());
        for (const std::string& name : names) {
            const std::string kind = file.attribute_kind(object, name);
            const std::string value = kind == "number" ? fmt::format("{:.17g}", file.read_number(object, name))
                                                       : file.read_as_text(object, name);
            text += fmt::format("attribute {} {} {} {}\n{}\n", object, name, kind, value.size(), value);
        }
    }
    for (const std::string& path : file.datasets("/")) {
        const hdf5::DatasetInfo about = file.info(path);
        text += fmt::format("dataset /{} {} [{}]\n", path, about.type_name, fmt::join(about.dimensions, ", "));
    }
    return text;
}

// Where 8-byte numbers go.
struct Sums {
    std::uint64_t offset = 0;
    std::vector<std::uint64_t> values;
};

std::vector<Sums> right_sums(const std::string& path) {
    std::vector<Sums> all;
    const hdf5::File file = hdf5::File::open(path);
    const std::int64_t block = file.read_integer("/checksums", "block_bytes");
    constexpr std::int64_t least_block = 4;  // smaller ones are refused, and would be many
    for (const std::string& dataset : file.datasets("/")) {
        if (dataset.starts_with(checksums) || block < least_block || !file.exists(checksums + dataset)) continue;
        const std::string bytes = bytes_of_dataset(file, dataset);
        const hdf5::DatasetInfo there = file.info(checksums + dataset);
        if (!there.contiguous || there.offset == 0) continue;
        Sums sums{there.offset, {}};
        for (std::size_t first = 0; first < bytes.size(); first += static_cast<std::size_t>(block))
            sums.values.push_back(
                hash64(bytes.data() + first, std::min(static_cast<std::size_t>(block), bytes.size() - first)));
        if (sums.values.size() * sizeof(std::uint64_t) == there.bytes) all.push_back(std::move(sums));
    }
    const std::string header = header_text(file);
    const hdf5::DatasetInfo there = file.info(checksums + "header");
    if (there.contiguous && there.offset > 0) all.push_back({there.offset, {hash64(header.data(), header.size())}});
    return all;
}

}  // namespace

std::vector<checkpoint::TensorInfo> small_tensors() {
    std::vector<checkpoint::TensorInfo> tensors;
    for (const std::string group : {"parameters/", "optimizer/first_moment/", "optimizer/second_moment/"}) {
        tensors.push_back({group + "embedding/weight", {6, 4}});
        tensors.push_back({group + "blocks/0/norm/weight", {4}});
    }
    return tensors;
}

void forge_checksums(const std::string& path) {
    std::vector<Sums> all;
    try {
        all = right_sums(path);
    } catch (const Error&) {
        return;  // too much is missing
    }
    const OpenFile file = OpenFile::for_writing(path);
    for (const Sums& sums : all) {
        const std::uint64_t bytes = sums.values.size() * sizeof(std::uint64_t), size = file.bytes();
        if (sums.offset <= size && bytes <= size - sums.offset) file.write(sums.values.data(), bytes, sums.offset);
    }
}

const std::vector<std::string>& small_checkpoints() {
    static const std::vector<std::string> all = [] {
        std::vector<std::string> files;
        checkpoint::Contents contents = contents_with("adamw");
        contents.tokenizer_kind = "sentencepiece";
        contents.tokenizer_files = {{"tokenizer.model", "a model"}, {"tokenizer_config.json", "{}"}};
        files.push_back(whole(contents));
        files.push_back(whole(contents_with("muon")));
        contents = contents_with("adamw");
        contents.state.base = "/models/base";
        contents.state.base_checksum = "0123456789abcdef";
        files.push_back(whole(contents));
        const checkpoint::PartHeader part =
            checkpoint::make_part_header(contents_with("adamw"), small_tensors(), {2, "0123456789abcdef"});
        const std::string path = write_file("part.h5", "");
        checkpoint::write_image(path, part.image);
        forge_checksums(path);
        files.push_back(read_file(path));
        return files;
    }();
    return all;
}

}  // namespace lockstep::fuzz
