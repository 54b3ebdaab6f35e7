#define BOOST_TEST_MODULE data_megatron
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "data/dataset.hpp"
#include "data/megatron.hpp"
#include "data/megatron_writer.hpp"
#include "data/pack.hpp"
#include "megatron_files.hpp"
#include "unit/data/damage.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::tests;

namespace {

// Three documents, of one sequence, of three with an empty one between, and of one; each ends in token 7.
MegatronData some_data(int code = 8) {
    MegatronData data;
    data.code = code;
    data.sequences = {{1, 2, 3, 7}, {4, 5}, {}, {6, 7}, {100, 7}};
    data.documents = {0, 1, 4, 5};
    return data;
}

std::vector<std::int32_t> all_tokens(const std::string& path) {
    DatasetOptions options;
    options.paths = {path};
    options.length = 1;
    options.random = false;
    const Dataset dataset(options);
    std::vector<std::int32_t> tokens;
    std::int32_t input = 0, target = 0;
    for (std::int64_t i = 0; i < dataset.windows(); ++i) {
        dataset.fetch(i, &input, &target);
        tokens.push_back(input);
    }
    tokens.push_back(target);
    return tokens;
}

std::string write_pair(const TemporaryFolder& folder, const std::string& prefix, const std::string& index,
                       const std::string& tokens) {
    folder.write(prefix + ".bin", tokens);
    folder.write(prefix + ".idx", index);
    return folder.path(prefix);
}

}  // namespace

BOOST_AUTO_TEST_CASE(both_formats_and_all_types_give_the_tokens) {
    const TemporaryFolder folder;
    const std::vector<std::int32_t> expected = {1, 2, 3, 7, 4, 5, 6, 7, 100, 7};
    for (const int code : {1, 2, 3, 4, 5, 8})
        for (const bool older : {false, true}) {
            const MegatronData data = some_data(code);
            const std::string prefix = write_pair(
                folder, "data", older ? older_megatron_index(data) : megatron_index(data), megatron_tokens(data));
            for (const char* ending : {"", ".bin", ".idx"})
                BOOST_TEST(all_tokens(prefix + ending) == expected, boost::test_tools::per_element());
            const MegatronFile file(*find_megatron(prefix));
            BOOST_TEST(file.sequences() == 5u);
            BOOST_TEST(file.documents() == 3u);
            BOOST_TEST(file.tokens() == 10u);
            BOOST_TEST(file.runs().size() == 1u);
            BOOST_TEST(file.unused_bytes() == 0u);
            BOOST_TEST((file.document_end() == 7));
        }
}

BOOST_AUTO_TEST_CASE(sequences_are_read_where_the_index_says) {
    const TemporaryFolder folder;
    const MegatronData data = some_data();
    std::string index = megatron_index(data);
    // The last sequence's tokens are those of the first two, and the two at the end are no one's.
    const std::int64_t begin = 0;
    std::memcpy(index.data() + 34 + 5 * 4 + 4 * 8, &begin, sizeof begin);
    const std::string prefix = write_pair(folder, "data", index, megatron_tokens(data));
    const std::vector<std::int32_t> expected = {1, 2, 3, 7, 4, 5, 6, 7, 1, 2};
    BOOST_TEST(all_tokens(prefix) == expected, boost::test_tools::per_element());
    const MegatronFile file(*find_megatron(prefix));
    BOOST_TEST(file.runs().size() == 2u);
    BOOST_TEST(file.unused_bytes() == 4u);
    BOOST_TEST(!file.document_end().has_value());
}

BOOST_AUTO_TEST_CASE(wrong_pairs_are_told) {
    const TemporaryFolder folder;
    const MegatronData data = some_data();
    const auto check = [&](const std::string& index, const std::string& tokens, ExitCode code,
                           const std::vector<std::string>& words) {
        const std::string prefix = write_pair(folder, "data", index, tokens);
        check_error([&] { all_tokens(prefix); }, code, words);
    };
    const std::string index = megatron_index(data), older = older_megatron_index(data), tokens = megatron_tokens(data);
    check("", tokens, ExitCode::damaged, {"data.idx", "MMIDIDX"});
    check(index, tokens.substr(2), ExitCode::damaged, {"sequence 4", "data.bin", "18 bytes"});
    check(older, tokens.substr(2), ExitCode::damaged, {"sequence 4", "data.bin"});
    check(index.substr(0, 40), tokens, ExitCode::damaged, {"data.idx", "truncated", "40 bytes"});
    check(index + "more", tokens, ExitCode::damaged, {"data.idx"});
    check(index + std::string(5, '\0'), tokens, ExitCode::usage, {"data.idx indexes multimodal data"});
    std::string changed = index;
    changed[17] = 7;
    check(changed, tokens, ExitCode::usage, {"data.idx indexes floating-point numbers, not tokens"});
    changed[17] = 30;
    check(changed, tokens, ExitCode::damaged, {"type 30"});
    changed = index;
    changed[9] = 2;
    check(changed, tokens, ExitCode::damaged, {"version 2"});
    changed = index;
    changed[changed.size() - 8] = 4;
    check(changed, tokens, ExitCode::damaged, {"documents end with sequence 4 of 5"});
    MegatronData negative = some_data(4);
    negative.sequences[1][0] = -1;
    check(megatron_index(negative), megatron_tokens(negative), ExitCode::damaged, {"negative"});
    MegatronData none;
    none.documents = {0};
    check(megatron_index(none), "", ExitCode::damaged, {"no tokens"});
    std::filesystem::remove(folder.path("data.bin"));
    check_error([&] { all_tokens(folder.path("data.idx")); }, ExitCode::usage, {"data.bin does not exist"});
}

BOOST_AUTO_TEST_CASE(damaged_pairs_never_crash) {
    log::show_from(log::Level::error);
    const TemporaryFolder folder;
    std::minstd_rand random(1);
    const long files = damaged_files(4000);
    long told = 0;
    for (long i = 0; i < files; ++i) {
        const MegatronData data = some_data(i % 2 == 0 ? 8 : 4);
        std::string index = i % 4 < 2 ? megatron_index(data) : older_megatron_index(data),
                    tokens = megatron_tokens(data);
        (i % 8 == 0 ? tokens : index) = damaged_twin(i % 8 == 0 ? tokens : index, random);
        const std::string prefix = write_pair(folder, "data", index, tokens);
        try {
            const MegatronFile with_ends(*find_megatron(prefix), true);
            BOOST_TEST(with_ends.document_ends().back() == static_cast<std::int64_t>(with_ends.tokens()));
            all_tokens(prefix);
        } catch (const Error& problem) {
            BOOST_TEST((problem.code() == ExitCode::damaged || problem.code() == ExitCode::usage), problem.what());
            ++told;
        }
    }
    BOOST_TEST(told > files / 2);
}

BOOST_AUTO_TEST_CASE(what_pack_writes_is_in_megatrons_format) {
    const TemporaryFolder folder;
    const std::string first = sample_text(70001), second = "b", third = sample_text(3000, 3);
    folder.write("in/1.txt", first);
    folder.write("in/2.jsonl", "{\"text\": \"b\"}\n");
    folder.write("in/3.txt", third);
    PackOptions options;
    options.paths = {folder.path("in")};
    options.out = folder.path("out");
    options.format = PackFormat::megatron;
    options.batch_bytes = 66000;  // several batches
    const PackResult result = pack(options);
    BOOST_TEST(result.documents == 3);
    BOOST_TEST(result.tokens == 70001 + 1 + 3000 + 3);
    const MegatronData data = read_megatron(read_file(folder.path("out.idx")), read_file(folder.path("out.bin")));
    BOOST_TEST(data.code == 8);
    BOOST_TEST(data.documents == (std::vector<std::int64_t>{0, 1, 2, 3}), boost::test_tools::per_element());
    BOOST_REQUIRE(data.sequences.size() == 3u);
    const std::vector<std::string> texts = {first, second, third};
    for (std::size_t i = 0; i < 3; ++i) {
        Sequence expected;
        for (const char byte : texts[i]) expected.push_back(static_cast<unsigned char>(byte));
        expected.push_back(0);
        BOOST_TEST((data.sequences[i] == expected));
    }
    // The tokens of a token file of the same text, and one that ends the last document.
    options.format = PackFormat::lockstep;
    options.out = folder.path("tokens.h5");
    pack(options);
    std::vector<std::int32_t> expected = all_tokens(options.out);
    expected.push_back(0);
    BOOST_TEST((all_tokens(folder.path("out")) == expected));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
        BOOST_TEST(entry.path().extension() != ".tmp", entry.path() << " is left behind");
    options.format = PackFormat::megatron;
    options.out = folder.path("out.bin");
    check_error([&] { pack(options); }, ExitCode::usage, {"out.bin", "common prefix"});
}

BOOST_AUTO_TEST_CASE(long_documents_become_several_sequences) {
    const TemporaryFolder folder;
    const std::string bin = folder.path("a.bin"), idx = folder.path("a.idx");
    MegatronWriter writer(bin, idx, 2, 70000, 4);
    const std::vector<std::size_t> lengths = {9, 0, 4, 1};
    std::uint64_t position = 0;
    std::uint16_t token = 0;
    for (const std::size_t length : lengths) {
        writer.begin_document(position);
        for (std::size_t i = 0; i < length; ++i, ++position) {
            ++token;
            writer.take(&token, 2);
        }
    }
    writer.finish();
    const MegatronData data = read_megatron(read_file(idx), read_file(bin));
    BOOST_TEST(data.code == 4);  // of a vocabulary beyond 65,500
    BOOST_TEST(data.documents == (std::vector<std::int64_t>{0, 3, 4, 5, 6}), boost::test_tools::per_element());
    const std::vector<Sequence> expected = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9}, {}, {10, 11, 12, 13}, {14}};
    BOOST_TEST((data.sequences == expected));
    BOOST_TEST(all_tokens(bin).size() == 14u);
}
