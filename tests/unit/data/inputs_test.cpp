#define BOOST_TEST_MODULE data_inputs
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "data/inputs.hpp"
#include "data/pack.hpp"
#include "megatron_files.hpp"
#include "unit/data/damage.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

std::string shard(const std::vector<std::uint16_t>& tokens, std::int32_t magic = 20240520) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = magic;
    header[1] = 1;
    header[2] = static_cast<std::int32_t>(tokens.size());
    return std::string(reinterpret_cast<const char*>(header.data()), 1024) + as_uint16(tokens);
}

// Kinds and names: "flat a.bin".
std::vector<std::string> found(const std::vector<std::string>& paths) {
    std::vector<std::string> list;
    for (const Input& input : find_inputs(paths)) {
        const char* kind = input.kind == InputKind::text         ? "text "
                           : input.kind == InputKind::token_file ? "tokens "
                           : input.kind == InputKind::flat_file  ? "flat "
                                                                 : "megatron ";
        list.push_back(kind + input.path.substr(input.path.rfind('/') + 1));
    }
    return list;
}

void check_found(const std::vector<std::string>& paths, const std::vector<std::string>& expected) {
    BOOST_TEST(found(paths) == expected, boost::test_tools::per_element());
}

std::int64_t tokens_of(const std::string& path) {
    DatasetOptions options;
    options.paths = {path};
    options.length = 1;
    return Dataset(options).tokens();
}

}  // namespace

BOOST_AUTO_TEST_CASE(folders_of_shards_are_their_files_in_byte_order) {
    const TemporaryFolder folder;
    for (const char* name : {"s/part_000010.bin", "s/part_000002.bin", "s/part_000001.bin", "s/.hidden.bin"})
        folder.write(name, shard({1, 2, 3}));
    folder.write("s/raw.bin", as_uint16({4, 5}));
    folder.write("s/deeper/other.bin", shard({1}));
    check_found({folder.path("s")},
                {"flat part_000001.bin", "flat part_000002.bin", "flat part_000010.bin", "flat raw.bin"});
    BOOST_TEST(tokens_of(folder.path("s")) == 11);
    check_found({folder.path("s") + "/part_*.bin"},
                {"flat part_000001.bin", "flat part_000002.bin", "flat part_000010.bin"});
    check_found({folder.path("s") + "/part_00000?.bin", folder.path("s/raw.bin")},
                {"flat part_000001.bin", "flat part_000002.bin", "flat raw.bin"});
    check_error([&] { found({folder.path("s") + "/none_*"}); }, ExitCode::usage, {"none_*", "matches no file"});
    check_error([&] { found({folder.path("s/none")}); }, ExitCode::usage, {"none", "does not exist"});
}

BOOST_AUTO_TEST_CASE(folders_with_text_stay_text_or_are_refused) {
    const TemporaryFolder folder;
    folder.write("raw/a.bin", as_uint16({4, 5, 0}));
    check_found({folder.path("raw")}, {"flat a.bin"});
    folder.write("raw/notes.txt", "text");
    check_found({folder.path("raw")}, {"text raw"});
    folder.write("known/a.bin", shard({1, 2}));
    folder.write("known/notes.txt", "text");
    check_error([&] { found({folder.path("known")}); }, ExitCode::usage,
                {"known", "a.bin", "both text and token files"});
    folder.write("sets/web_train_01.bin", shard({1, 2}));
    folder.write("sets/web_val_00.bin", shard({1, 2}));
    check_error([&] { found({folder.path("sets")}); }, ExitCode::usage,
                {"web_train_01.bin", "web_val_00.bin", "*train*"});
    check_found({folder.path("sets") + "/*train*"}, {"flat web_train_01.bin"});
    // Words alone count, not letters within others.
    folder.write("words/train_0.bin", shard({1, 2}));
    folder.write("words/latest_0.bin", shard({1, 2}));
    folder.write("words/retrained_interval.bin", shard({1, 2}));
    check_found({folder.path("words")}, {"flat latest_0.bin", "flat retrained_interval.bin", "flat train_0.bin"});
    for (const char* other : {"test1.bin", "web-validation.bin", "val.bin"}) {
        const std::string path = folder.write(std::string("words/") + other, shard({1, 2}));
        check_error([&] { found({folder.path("words")}); }, ExitCode::usage, {"train_0.bin", other});
        std::filesystem::remove(path);
    }
}

BOOST_AUTO_TEST_CASE(pairs_and_token_files_are_found_in_folders) {
    const TemporaryFolder folder;
    tests::MegatronData data;
    data.sequences = {{1, 2, 3}};
    data.documents = {0, 1};
    for (const char* prefix : {"m/b", "m/a"}) {
        folder.write(prefix + std::string(".bin"), tests::megatron_tokens(data));
        folder.write(prefix + std::string(".idx"), tests::megatron_index(data));
    }
    check_found({folder.path("m")}, {"megatron a.bin", "megatron b.bin"});
    check_found({folder.path("m") + "/*"}, {"megatron a.bin", "megatron b.bin"});
    check_found({folder.path("m/b"), folder.path("m/a.idx"), folder.path("m/a.bin")},
                {"megatron b.bin", "megatron a.bin", "megatron a.bin"});
    // Between the two files of one pair in byte order stands another pair.
    for (const char* prefix : {"n/web", "n/web.de"}) {
        folder.write(prefix + std::string(".bin"), tests::megatron_tokens(data));
        folder.write(prefix + std::string(".idx"), tests::megatron_index(data));
    }
    check_found({folder.path("n/web*")}, {"megatron web.bin", "megatron web.de.bin"});
    check_found({folder.path("n/web*"), folder.path("n/web.idx")},
                {"megatron web.bin", "megatron web.de.bin", "megatron web.bin"});
    for (const std::string& path : {folder.path("n"), folder.path("n/w*")})
        for (const Input& input : find_inputs({path}))
            BOOST_TEST(input.index == input.path.substr(0, input.path.size() - 3) + "idx");
    PackOptions options;
    options.paths = {folder.write("text.txt", "some text")};
    options.out = folder.folder("h") + "/one.h5";
    pack(options);
    check_found({folder.path("h")}, {"tokens one.h5"});
}

BOOST_AUTO_TEST_CASE(other_files_of_llm_c_are_refused) {
    const TemporaryFolder folder;
    for (const std::int32_t magic : {20240522, 20240326, 20240327, 20240328})
        check_error(
            [&] {
                tokens_of(folder.write("a.bin", shard({1, 2}, magic)));
            },
            ExitCode::usage, {"a.bin is an llm.c file that holds", "not tokens"});
}

BOOST_AUTO_TEST_CASE(damaged_shards_never_crash) {
    const TemporaryFolder folder;
    std::minstd_rand random(5);
    const std::string whole = shard({1, 2, 3, 4, 5, 6, 7, 8});
    const long files = damaged_files(3000);
    long told = 0;
    for (long i = 0; i < files; ++i) {
        const std::string path = folder.write("a.bin", damaged_twin(whole, random));
        try {
            tokens_of(path);
        } catch (const Error& problem) {
            BOOST_TEST((problem.code() == ExitCode::damaged || problem.code() == ExitCode::usage), problem.what());
            ++told;
        }
    }
    BOOST_TEST(told > files / 3);
}
