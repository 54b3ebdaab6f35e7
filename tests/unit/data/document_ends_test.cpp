#define BOOST_TEST_MODULE data_document_ends
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "data/pack.hpp"
#include "data/sources.hpp"
#include "data/token_file.hpp"
#include "hdf5/hdf5.hpp"
#include "megatron_files.hpp"
#include "places.hpp"
#include "unit/data/letters.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::tests;

namespace {

using Ends = std::vector<std::int64_t>;

// Checks what holds of all ends.
Ends ends_of(const std::vector<std::string>& paths, std::shared_ptr<const Tokenizer> kept = {}) {
    SourceOptions options;
    options.paths = paths;
    options.kept = std::move(kept);
    std::uint64_t room = 1 << 30;
    const Sources without(options, room);
    BOOST_TEST(without.document_ends().empty());
    options.with_document_ends = true;
    const Sources with(options, room);
    BOOST_TEST(with.tokens() == without.tokens());
    BOOST_TEST(with.checksum() == without.checksum());
    BOOST_REQUIRE(!with.document_ends().empty());
    BOOST_TEST(with.document_ends().back() == with.tokens());
    return with.document_ends();
}

std::string packed(const TemporaryFolder& folder, const std::vector<std::string>& paths, const std::string& name,
                   PackFormat format = PackFormat::lockstep, std::shared_ptr<const Tokenizer> kept = {}) {
    PackOptions options;
    options.paths = paths;
    options.out = folder.path(name);
    options.format = format;
    options.kept_tokenizer = std::move(kept);
    options.batch_bytes = 66000;  // several batches
    pack(options);
    return options.out;
}

void check(const Ends& found, const Ends& expected) {
    BOOST_TEST(found == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(text_and_what_pack_makes_of_it_have_the_same_ends) {
    const TemporaryFolder folder;
    folder.write("in/1.txt", "abc");
    folder.write("in/2.txt", sample_text(1200000));  // large enough to be mapped
    folder.write("in/3.txt", sample_text(70001, 2));
    folder.write("in/4.txt", "d");
    const Ends expected = {4, 1200005, 1270007, 1270008};
    const std::string in = folder.path("in");
    check(ends_of({in}), expected);
    check(ends_of({packed(folder, {in}, "a.h5")}), expected);
    Ends closed = expected;
    ++closed.back();  // every document has its boundary there
    check(ends_of({packed(folder, {in}, "a", PackFormat::megatron)}), closed);
    // Encoded at the start, and with lines of JSON Lines among them.
    folder.write("in/5.jsonl", "{\"text\": \"ef\"}\n{\"text\": \"\"}\n{\"text\": \"ghi\"}\n");
    Ends more = expected;
    more.back() += 1;
    more.insert(more.end(), {1270012, 1270015});
    check(ends_of({in}), more);
    check(ends_of({packed(folder, {in}, "b.h5")}), more);
    const std::string file = folder.path("b.h5");
    BOOST_TEST(read_token_file_info(file).document_end_count == 6);
    BOOST_TEST(verify_token_file(file) == 1270015u + 6 * 8);
}

BOOST_AUTO_TEST_CASE(sources_end_their_last_documents) {
    const TemporaryFolder folder;
    const std::string a = folder.write("a.txt", "aa"), b = folder.write("b.txt", "b"),
                      c = folder.write("c.jsonl", "{\"text\": \"c\"}\n{\"text\": \"c\"}\n");
    const std::string file = packed(folder, {a, b}, "ab.h5");
    check(ends_of({file, b, a, file, c}), {3, 4, 6, 8, 11, 12, 14, 15});
}

BOOST_AUTO_TEST_CASE(documents_without_tokens_are_left_out) {
    const TemporaryFolder folder;
    const std::vector<std::string> paths = {folder.write("1", " "), folder.write("2", "a b"), folder.write("3", "  "),
                                            folder.write("4", "c"), folder.write("5", " \n")};
    // Without a boundary token, ends are still known.
    const auto none = std::make_shared<Letters>(-1), zero = std::make_shared<Letters>(0);
    check(ends_of(paths, none), {2, 3});
    check(ends_of({packed(folder, paths, "none.h5", PackFormat::lockstep, none)}), {2, 3});
    check(ends_of({packed(folder, paths, "none", PackFormat::megatron, none)}), {2, 3});
    // With one, a document without any other token has that.
    check(ends_of(paths, zero), {1, 4, 5, 7});
    check(ends_of({packed(folder, paths, "zero.h5", PackFormat::lockstep, zero)}), {1, 4, 5, 7});
    check(ends_of({packed(folder, paths, "zero", PackFormat::megatron, zero)}), {1, 4, 5, 7, 8});
}

BOOST_AUTO_TEST_CASE(tokenizers_give_the_ends_too) {
    const TemporaryFolder folder;
    std::vector<std::shared_ptr<const Tokenizer>> tokenizers;
#ifdef LOCKSTEP_SENTENCEPIECE
    PackOptions training;
    training.paths = {folder.write("training.txt", sample_text(70000, 5))};
    training.out = folder.path("training.h5");
    training.train_tokenizer = 330;
    pack(training);
    tokenizers.push_back(open_tokenizer(training.out));
#endif
#ifdef LOCKSTEP_HUGGINGFACE
    tokenizers.push_back(open_tokenizer(source_path("tests/unit/data/tokenizers/gpt2.json")));
#endif
    for (const auto& tokenizer : tokenizers) {
        BOOST_REQUIRE(tokenizer->boundary() >= 0);
        std::vector<std::string> paths;
        Ends expected;
        std::int64_t end = 0;
        // The largest is divided among threads.
        for (const std::size_t bytes : {500, 1, 150000, 30000}) {
            const std::string text = sample_text(bytes, static_cast<unsigned>(bytes));
            paths.push_back(folder.write("in/" + std::to_string(bytes), text));
            std::int64_t tokens = 0;
            if (tokenizer->parts() || bytes < 65536)
                tokens = static_cast<std::int64_t>(tokenizer->encode(text).size());
            else
                tokens = ends_of({paths.back()}, tokenizer).back();
            end += tokens + (expected.size() < 3 ? 1 : 0);
            expected.push_back(end);
        }
        check(ends_of(paths, tokenizer), expected);
        check(ends_of({packed(folder, paths, "a.h5", PackFormat::lockstep, tokenizer)}), expected);
        ++expected.back();
        check(ends_of({packed(folder, paths, "a", PackFormat::megatron, tokenizer)}), expected);
    }
}

BOOST_AUTO_TEST_CASE(megatron_pairs_have_documents_of_sequences) {
    const TemporaryFolder folder;
    MegatronData data;
    data.sequences = {{1, 2, 3, 7}, {4, 5}, {}, {6, 7}, {}, {100, 7}};
    data.documents = {0, 0, 1, 4, 5, 6, 6};  // two without sequences, and one with an empty one
    folder.write("a.bin", megatron_tokens(data));
    for (const bool older : {false, true}) {
        std::string index = older ? older_megatron_index(data) : megatron_index(data);
        folder.write("a.idx", index);
        check(ends_of({folder.path("a")}), {4, 8, 10});
        // The tokens of the last sequence may be anywhere.
        const std::int64_t begin = 0;
        if (!older) std::memcpy(index.data() + 34 + 6 * 4 + 5 * 8, &begin, sizeof begin);
        folder.write("a.idx", index);
        check(ends_of({folder.path("a")}), {4, 8, 10});
    }
}

BOOST_AUTO_TEST_CASE(files_without_ends_are_refused) {
    const TemporaryFolder folder;
    const std::string flat = folder.write("a.bin", as_uint16({1, 2, 3})),
                      older = source_path("tests/compatibility/sentencepiece-tokens.h5");
    const auto open = [](const std::string& path) {
        SourceOptions options;
        options.paths = {path};
        options.with_document_ends = true;
        std::uint64_t room = 1 << 20;
        const Sources sources(options, room);
    };
    check_error([&] { open(flat); }, ExitCode::usage,
                {flat + " has no document boundaries", "raw .bin file", "lockstep pack", "Megatron-LM"});
    // Everything else still reads it.
    BOOST_TEST(read_token_file_info(older).document_end_count == 0);
    BOOST_TEST(verify_token_file(older) > 0u);
    check_error([&] { open(older); }, ExitCode::usage,
                {older + " has no document boundaries", "older lockstep", "pack it again"});
}

BOOST_AUTO_TEST_CASE(damaged_ends_are_told) {
    const TemporaryFolder folder;
    const std::string good = packed(folder, {folder.write("a.txt", "aa"), folder.write("b.txt", "b")}, "good.h5");
    // The same file with other ends.
    const auto with = [&](hdf5::ElementType type, const Ends& ends, bool right_checksum = true) {
        const hdf5::File from = hdf5::File::open(good);
        auto to = hdf5::File::create(folder.path("made.h5"));
        for (const auto& name : from.attributes("/")) {
            if (from.attribute_kind("/", name) == "text")
                to.write_attribute("/", name, from.read_string("/", name));
            else if (from.attribute_kind("/", name) == "integer")
                to.write_attribute("/", name, from.read_integer("/", name));
            else
                to.write_attribute("/", name, from.read_number("/", name));
        }
        to.write_text("tokens", from.read_text("tokens"));
        to.create_dataset("document_ends", type, {ends.size()});
        to.write("document_ends", ends.data());
        const std::uint64_t sum = hash64(ends.data(), ends.size() * sizeof ends[0]);
        to.write_attribute("document_ends", "checksum", hash_text(right_checksum ? sum : sum + 1));
        to.close();
        return folder.path("made.h5");
    };
    const auto int64 = hdf5::ElementType::int64;
    BOOST_TEST(verify_token_file(with(int64, {3, 4})) == 20u);
    BOOST_TEST(verify_token_file(with(int64, {4})) == 12u);
    const auto refused = [&](const std::string& path, const std::vector<std::string>& words) {
        check_error([&] { verify_token_file(path); }, ExitCode::damaged, words);
        check_error([&] { read_document_ends(read_token_file_info(path)); }, ExitCode::damaged, words);
    };
    refused(with(int64, {3, 4}, false), {"made.h5", "/document_ends has checksum"});
    refused(with(int64, {0, 4}), {"made.h5", "ends at token 0, but the one before it at 0"});
    refused(with(int64, {-1, 4}), {"ends at token -1,"});
    refused(with(int64, {4, 4}), {"ends at token 4, but the one before it at 4"});
    refused(with(int64, {4, 3}), {"ends at token 3, but the one before it at 4"});
    refused(with(int64, {2, 3}), {"its last document ends at token 3 of 4"});
    refused(with(int64, {4, 9}), {"its last document ends at token 9 of 4"});
    refused(with(int64, {1, 3, 4}), {"not a row of 1 to 2 int64"});  // more than there are documents
    refused(with(hdf5::ElementType::uint64, {3, 4}), {"not a row of 1 to 2 int64"});
    // A changed byte, as the disk may leave it.
    std::string flipped = read_file(good);
    flipped[hdf5::File::open(good).info("document_ends").offset] ^= 1;
    refused(folder.write("flipped.h5", flipped), {"flipped.h5", "/document_ends has checksum"});
    // Tokens are read without them.
    BOOST_TEST(read_token_file_info(folder.path("flipped.h5")).token_count == 4);
}
