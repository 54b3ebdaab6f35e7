#define BOOST_TEST_MODULE data_tokenizer
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "data/pack.hpp"
#include "data/token_file.hpp"
#include "data/tokenizer.hpp"
#include "device/parallel.hpp"
#include "places.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

BOOST_AUTO_TEST_CASE(bytes_round_trip_every_byte) {
    const auto tokenizer = make_tokenizer("bytes", {});
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    const auto tokens = tokenizer->encode(all);
    BOOST_REQUIRE(tokens.size() == 256u);
    for (std::int32_t i = 0; i < 256; ++i) BOOST_TEST(tokens[static_cast<std::size_t>(i)] == i);
    BOOST_TEST(tokenizer->decode(tokens) == all);
    BOOST_TEST(tokenizer->vocabulary() == 256);
    BOOST_TEST(tokenizer->kind() == "bytes");
    BOOST_TEST(tokenizer->files().empty());
    BOOST_TEST(tokenizer->boundary() == 0);
    BOOST_TEST(tokenizer->encode("").empty());
}

BOOST_AUTO_TEST_CASE(bytes_decode_tokens_of_a_larger_model) {
    BOOST_TEST(make_tokenizer("bytes", {})->decode({'a', 256, -1, 'b'}) ==
               "a\xEF\xBF\xBD\xEF\xBF\xBD"
               "b");
}

BOOST_AUTO_TEST_CASE(unknown_tokenizers_are_usage_errors) {
    check_error([] { make_tokenizer("gpt", {}); }, ExitCode::usage, {"gpt", "bytes", "sentencepiece"});
    check_error([] { open_tokenizer("/no/such/file.model"); }, ExitCode::usage,
                {"/no/such/file.model", "does not exist"});
}

#ifdef LOCKSTEP_SENTENCEPIECE
namespace {

PackResult pack_with_new_tokenizer(const TemporaryFolder& folder, const std::string& text, std::int64_t pieces) {
    PackOptions options;
    options.paths = {folder.write("text.txt", text)};
    options.out = folder.path("tokens.h5");
    options.train_tokenizer = pieces;
    return pack(options);
}

}  // namespace

BOOST_AUTO_TEST_CASE(trained_sentencepiece_round_trips_and_lives_in_the_token_file) {
    const TemporaryFolder folder;
    const std::string text = sample_text(40000);
    const PackResult result = pack_with_new_tokenizer(folder, text, 350);
    BOOST_TEST(result.vocabulary == 350);
    BOOST_TEST(result.tokens < result.bytes / 2);
    const TokenFile file(folder.path("tokens.h5"));
    BOOST_TEST(file.info().tokenizer_kind == "sentencepiece");
    BOOST_TEST(file.info().token_width == 2u);
    const auto tokenizer = make_tokenizer(file.info().tokenizer_kind, file.info().tokenizer_files);
    BOOST_TEST(tokenizer->vocabulary() == 350);
    BOOST_TEST((tokenizer->files() == file.info().tokenizer_files));
    BOOST_TEST(tokenizer->decode(tokenizer->encode(text)) == text);
    std::string ascii;
    for (int byte = 1; byte < 128; ++byte) ascii += static_cast<char>(byte);
    const std::vector<std::string> others = {ascii, "  two  spaces \n\n\tand a tab ", "x", " ",
                                             "\n",  "na\xC3\xAFve \xE2\x82\xAC"};
    for (const auto& other : others) BOOST_TEST(tokenizer->decode(tokenizer->encode(other)) == other);
    BOOST_TEST(tokenizer->decode({350, 100000, -1}) == tokenizer->decode({0, 0, 0}));

    // The model alone, as a file, does the same.
    const auto opened = open_tokenizer(folder.write("own.model", file.info().tokenizer_files.front().contents));
    BOOST_TEST(opened->encode(text) == tokenizer->encode(text), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_model_is_found_among_the_files_of_its_folder) {
    const TemporaryFolder folder;
    pack_with_new_tokenizer(folder, sample_text(30000), 320);
    const std::string model = TokenFile(folder.path("tokens.h5")).info().tokenizer_files.front().contents;
    const std::string text = "the loss with respect to weights";
    const TokenizerFiles files = {
        {"generation_config.json", "{}"}, {"tokenizer.model", model}, {"tokenizer_config.json", "{}"}};
    BOOST_TEST(kind_of_files(files) == "sentencepiece");
    BOOST_TEST(make_tokenizer("sentencepiece", files)->decode(make_tokenizer("sentencepiece", files)->encode(text)) ==
               text);
    BOOST_TEST(make_tokenizer("sentencepiece", {{"any.model", model}})->vocabulary() == 320);  // as older files have it
    check_error(
        [&] {
            make_tokenizer("sentencepiece", {{"any.model", model}, {"tokenizer_config.json", "{}"}});
        },
        ExitCode::damaged, {"2 files", "tokenizer.model"});
}

#ifdef LOCKSTEP_HUGGINGFACE
BOOST_AUTO_TEST_CASE(a_model_is_taken_where_the_json_beside_it_is_not_implemented) {
    const TemporaryFolder folder;
    pack_with_new_tokenizer(folder, sample_text(30000), 320);
    const std::string model = TokenFile(folder.path("tokens.h5")).info().tokenizer_files.front().contents;
    const std::string path = folder.write("both/tokenizer.model", model);
    const std::string both = path.substr(0, path.rfind('/'));
    const auto kind_with = [&](const std::string& json) {
        folder.write("both/tokenizer.json", json);
        return kind_of_files(read_tokenizer_files(both));
    };
    // As Llama 2's: bytes that the vocabulary lacks have tokens of their own.
    BOOST_TEST(kind_with(R"({"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0},"merges":[]}})") ==
               "sentencepiece");
    BOOST_TEST(open_tokenizer(both)->kind() == "sentencepiece");
    BOOST_TEST(open_tokenizer(both)->vocabulary() == 320);
    // Damage is not passed over.
    BOOST_TEST(kind_with("{") == "huggingface");
    check_error([&] { open_tokenizer(both); }, ExitCode::damaged, {"tokenizer.json"});
    BOOST_TEST(kind_with(read_file(tests::source_path("tests/unit/data/tokenizers/gpt2.json"))) == "huggingface");
    BOOST_TEST(open_tokenizer(both)->kind() == "huggingface");
    BOOST_TEST((open_tokenizer(both)->files() == read_tokenizer_files(both)));
}
#endif

BOOST_AUTO_TEST_CASE(training_a_tokenizer_repeats_whatever_the_threads) {
    const TemporaryFolder folder;
    const std::string text = sample_text(30000);
    const int before = threads();
    set_threads(1);
    const PackResult one = pack_with_new_tokenizer(folder, text, 320);
    const TokenizerFiles model = TokenFile(folder.path("tokens.h5")).info().tokenizer_files;
    set_threads(2);
    const PackResult two = pack_with_new_tokenizer(folder, text, 320);
    set_threads(before);
    BOOST_TEST(one.checksum == two.checksum);
    BOOST_TEST((model == TokenFile(folder.path("tokens.h5")).info().tokenizer_files));
}

BOOST_AUTO_TEST_CASE(numbers_of_pieces_that_do_not_suit_the_text_are_usage_errors) {
    const TemporaryFolder folder;
    check_error([&] { pack_with_new_tokenizer(folder, "hello world\n", 5000); }, ExitCode::usage,
                {"5000", "too large"});
    check_error([&] { pack_with_new_tokenizer(folder, "hello world\n", 200); }, ExitCode::usage, {"200", "too small"});
    check_error([&] { pack_with_new_tokenizer(folder, "hello world\n", -1); }, ExitCode::usage, {"-1"});
    BOOST_TEST(!std::filesystem::exists(folder.path("tokens.h5")));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_no_model_is_damaged) {
    const TemporaryFolder folder;
    const std::string path = folder.write("broken.model", "this is no model");
    check_error([&] { open_tokenizer(path); }, ExitCode::damaged, {path});
    const std::string empty = folder.write("empty.model", "");
    check_error([&] { open_tokenizer(empty); }, ExitCode::damaged, {empty});
}
#else
BOOST_AUTO_TEST_CASE(without_sentencepiece_the_package_is_named) {
    check_error(
        [] {
            make_tokenizer("sentencepiece", {{"tokenizer.model", "model"}});
        },
        ExitCode::usage, {"libsentencepiece-dev"});
}
#endif

#ifndef LOCKSTEP_HUGGINGFACE
BOOST_AUTO_TEST_CASE(without_its_libraries_the_packages_are_named) {
    check_error(
        [] {
            make_tokenizer("huggingface", {{"tokenizer.json", "{}"}});
        },
        ExitCode::usage, {"libpcre2-dev", "libutf8proc-dev"});
}
#endif
