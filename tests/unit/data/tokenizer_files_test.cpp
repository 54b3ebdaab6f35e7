#define BOOST_TEST_MODULE data_tokenizer_files
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer_files.hpp"
#include "hdf5/hdf5.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

std::vector<std::string> paths_in(const TemporaryFolder& folder, const std::function<void(hdf5::File&)>& fill) {
    const std::string path = folder.path("made.h5");
    auto file = hdf5::File::create(path);
    fill(file);
    file.close();
    return tokenizer_file_paths(hdf5::File::open(path));
}

}  // namespace

BOOST_AUTO_TEST_CASE(names_are_plain_file_names) {
    for (const char* name : {"tokenizer.json", "tokenizer.model", "a", "with space", "special_tokens_map.json"})
        BOOST_TEST(is_tokenizer_file_name(name), name);
    for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                    std::string("/a"), std::string("a\\b"), std::string(".hidden"), std::string("a\nb"),
                                    std::string("a\0b", 3), std::string("caf\xC3\xA9"), std::string(101, 'a')})
        BOOST_TEST(!is_tokenizer_file_name(name), name);
    BOOST_TEST(tokenizer_file_name(tokenizer_file_path("vocab.json")) == "vocab.json");
    BOOST_TEST(tokenizer_file_name("tokenizer_model") == "tokenizer.model");
    BOOST_TEST(tokenizer_file_name("parameters/head/weight") == "");
}

BOOST_AUTO_TEST_CASE(files_in_a_file_are_found_by_name) {
    const TemporaryFolder folder;
    BOOST_TEST(paths_in(folder, [](hdf5::File& file) { file.write_text("tokens", "abc"); }).empty());
    const std::vector<std::string> both = {"tokenizer/merges.txt", "tokenizer/tokenizer.json"},
                                   old = {"tokenizer_model"};
    BOOST_TEST(paths_in(folder,
                        [](hdf5::File& file) {
                            file.write_text("tokenizer/tokenizer.json", "{}");
                            file.write_text("tokenizer/merges.txt", "");
                        }) == both,
               boost::test_tools::per_element());
    BOOST_TEST(paths_in(folder, [](hdf5::File& file) { file.write_text("tokenizer_model", "model"); }) == old,
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_cannot_be_a_tokenizer_is_damage) {
    const TemporaryFolder folder;
    const auto refused = [&](const std::function<void(hdf5::File&)>& fill, const std::string& word) {
        check_error([&] { paths_in(folder, fill); }, ExitCode::damaged, {"made.h5", word});
    };
    refused([](hdf5::File& file) { file.write_text("tokenizer/deeper/tokenizer.json", "{}"); }, "impossible name");
    refused([](hdf5::File& file) { file.write_text("tokenizer/..", "{}"); }, "impossible name");
    refused([](hdf5::File& file) { file.write_text("tokenizer/" + std::string(101, 'n'), "{}"); }, "impossible name");
    refused([](hdf5::File& file) { file.create_dataset("tokenizer/a", hdf5::ElementType::fp32, {4}); }, "uint8");
    refused([](hdf5::File& file) { file.create_dataset("tokenizer/a", hdf5::ElementType::uint8, {4, 4}); }, "uint8");
    refused([](hdf5::File& file) { file.create_dataset("tokenizer/a", hdf5::ElementType::uint8, {300 << 20}); },
            "exceed");
    refused(
        [](hdf5::File& file) {
            file.create_dataset("tokenizer/a", hdf5::ElementType::uint8, {most_tokenizer_bytes});
            file.write_text("tokenizer/b", "x");
        },
        "exceed");
    refused(
        [](hdf5::File& file) {
            for (std::size_t i = 0; i <= most_tokenizer_files; ++i)
                file.write_text("tokenizer/" + std::to_string(i), "x");
        },
        "17 files");
    refused(
        [](hdf5::File& file) {
            file.write_text("tokenizer_model", "model");
            file.write_text("tokenizer/tokenizer.model", "model");
        },
        "both");
}

BOOST_AUTO_TEST_CASE(of_huggingface_only_the_vocabulary_counts) {
    const TokenizerFiles one = {{"tokenizer.json", "{1}"}, {"tokenizer_config.json", "{}"}}, other = {one.front()};
    BOOST_TEST(same_tokenizer("huggingface", one, "huggingface", other));
    BOOST_TEST(!same_tokenizer("huggingface", one, "huggingface", {{"tokenizer.json", "{2}"}}));
    BOOST_TEST(!same_tokenizer("huggingface", {}, "huggingface", {}));
    BOOST_TEST(!same_tokenizer("sentencepiece", one, "sentencepiece", other));
    BOOST_TEST(!same_tokenizer("bytes", {}, "sentencepiece", {}));
    BOOST_TEST(same_tokenizer("bytes", {}, "bytes", {}));
}
