// Token files. An input chooses a whole one, edits it, gives it right checksums, or not, and chooses what reads it.
#include "data/token_file.hpp"

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/pack.hpp"
#include "data/sources.hpp"
#include "fuzz/harness.hpp"
#include "fuzz/hdf5_edits.hpp"
#include "places.hpp"

using namespace lockstep;

namespace {

std::string packed() {
    fuzz::write_file("text/a.txt", "The first document.\nIt has two lines.\n");
    fuzz::write_file("text/b.txt", "And another.\n");
    data::PackOptions options;
    options.paths = {fuzz::folder() + "/text"};
    options.out = fuzz::folder() + "/packed.h5";
    options.progress = false;
    data::pack(options);
    return fuzz::read_file(options.out);
}

const std::vector<std::string>& bases() {
    static const std::vector<std::string> all = {
        packed(), fuzz::read_file(tests::source_path("tests/compatibility/sentencepiece-tokens.h5"))};
    return all;
}

void forge_checksums(const std::string& path) {
    std::vector<fuzz::TextAttribute> sums;
    try {
        const hdf5::File file = hdf5::File::open(path);
        const auto add = [&](const char* dataset, const char* object, const char* name) {
            const std::string bytes = fuzz::bytes_of_dataset(file, dataset);
            if (!bytes.empty()) sums.push_back({object, name, hash_text(hash64(bytes.data(), bytes.size()))});
        };
        add("tokens", "/", "checksum");
        add("tokenizer_model", "/", "tokenizer_model_checksum");
        add("document_ends", "document_ends", "checksum");
    } catch (const Error&) {
        return;  // it is no file of HDF5's any more
    }
    fuzz::set_text_attributes(path, sums);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Choices choices(fuzz::text_of(data, size));
    const std::string& base = bases()[choices.below(bases().size())];
    const bool forged = choices.below(4) != 3;
    const std::size_t reader = choices.below(3);  // one at a time: opening it takes HDF5 most of the time
    const std::string path = fuzz::write_file("tokens/a.h5", base);
    fuzz::edit_hdf5(path, choices);
    if (forged) forge_checksums(path);
    fuzz::judge(base.size(), [&] {
        if (reader == 0) {
            data::verify_token_file(path);
            return;
        }
        std::uint64_t room = 1 << 20;
        const data::Sources sources({.paths = {path}, .with_document_ends = reader == 1}, room);
        std::int32_t token = 0;
        sources.copy(sources.tokens() - 1, 1, &token);
    });
    return 0;
}
