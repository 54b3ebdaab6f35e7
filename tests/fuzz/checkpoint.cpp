// Checkpoints. An input chooses a whole one, edits it, gives it right checksums, or not, and chooses what reads it.
#include "checkpoint/checkpoint.hpp"

#include <memory>

#include "checkpoint/stream.hpp"
#include "config/run_description.hpp"
#include "fuzz/checkpoint_files.hpp"
#include "fuzz/harness.hpp"
#include "fuzz/hdf5_edits.hpp"

using namespace lockstep;

namespace {

cluster::HostGroup& this_process() {
    static const auto group = cluster::make_solo_group();
    return *group;
}

// As a conversion does, which knows of no model.
void read_through(const std::string& path) {
    constexpr std::uint64_t most_bytes = 1 << 16;
    checkpoint::read_through(
        path, checkpoint::parameters_prefix, most_bytes,
        [](const checkpoint::TensorInfo&, std::int64_t, std::int64_t, const float*) {}, this_process());
}

void load_all(const std::string& path) {
    std::vector<std::vector<float>> memory;
    std::vector<checkpoint::Entry> entries;
    for (const checkpoint::TensorInfo& tensor : fuzz::small_tensors()) {
        memory.emplace_back(static_cast<std::size_t>(element_count(tensor.shape)));
        entries.push_back(
            checkpoint::whole(tensor.path, Tensor(memory.back().data(), Type::fp32, tensor.shape), nullptr));
    }
    checkpoint::load(path, entries, this_process());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string>& bases = fuzz::small_checkpoints();
    fuzz::Choices choices(fuzz::text_of(data, size));
    const std::size_t base = choices.below(bases.size());
    const bool forged = choices.below(4) != 3;
    const std::size_t reader = choices.below(4);  // one at a time: opening it takes HDF5 most of the time
    // A part's name says which one it is.
    const std::string path =
        fuzz::write_file(base == 3 ? "step-00000007.h5.part-0001-of-0002" : "step-00000007.h5", bases[base]);
    fuzz::edit_hdf5(path, choices);
    if (forged) fuzz::forge_checksums(path);
    constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;  // which blocks are read into
    const auto read = [&] {
        if (reader == 0)
            config::parse_foreign_description(checkpoint::read_contents(path).run_description, path);
        else if (reader == 1)
            checkpoint::verify(path);
        else if (reader == 2)
            load_all(path);
        else
            read_through(path);
    };
    fuzz::judge(bases[base].size(), read, huge_page);
    return 0;
}
