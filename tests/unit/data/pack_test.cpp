#define BOOST_TEST_MODULE data_pack
#include <sys/resource.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "data/encode.hpp"
#include "data/pack.hpp"
#include "data/token_file.hpp"
#include "device/parallel.hpp"
#include "hdf5/hdf5.hpp"
#include "places.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

PackOptions options_for(const std::vector<std::string>& paths, const std::string& out) {
    PackOptions options;
    options.paths = paths;
    options.out = out;
    return options;
}

std::string tokens_as_text(const std::string& path) {
    const TokenFile file(path);
    return {reinterpret_cast<const char*>(file.tokens()), static_cast<std::size_t>(file.info().token_bytes())};
}

// All but the times at which HDF5 made its objects.
std::string everything_in(const std::string& path) {
    const hdf5::File file = hdf5::File::open(path);
    std::string all = tokens_as_text(path);
    for (const auto& name : file.attributes("/")) all += name + "=" + file.read_as_text("/", name) + "\n";
    return all + (file.exists("tokenizer/tokenizer.model") ? file.read_text("tokenizer/tokenizer.model") : "");
}

// Straight from the definitions, in two loops over the text.
double naive_entropy(const std::string& text) {
    std::array<double, 256> counts{};
    for (const char byte : text) counts[static_cast<unsigned char>(byte)] += 1;
    double sum = 0;
    for (const double count : counts)
        if (count > 0)
            sum -= count / static_cast<double>(text.size()) * std::log(count / static_cast<double>(text.size()));
    return sum;
}

double naive_conditional_entropy(const std::string& text) {
    std::vector<double> pairs(65536), before(256);
    for (std::size_t i = 1; i < text.size(); ++i) {
        const auto first = static_cast<unsigned char>(text[i - 1]), second = static_cast<unsigned char>(text[i]);
        pairs[first * std::size_t{256} + second] += 1;
        before[first] += 1;
    }
    double sum = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i)
        if (pairs[i] > 0) sum -= pairs[i] / static_cast<double>(text.size() - 1) * std::log(pairs[i] / before[i / 256]);
    return sum;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_token_file_holds_the_text_and_says_what_it_is) {
    const TemporaryFolder folder;
    const std::string first = sample_text(5000), second = sample_text(3000, 2);
    folder.write("in/a.txt", first);
    folder.write("in/b/b.txt", second);
    folder.write("in/c.bin", std::string(10, '\0'));
    const std::string out = folder.path("tokens.h5"), expected = first + '\0' + second;
    const PackResult result = pack(options_for({folder.path("in")}, out));
    BOOST_TEST(result.files == 2);
    BOOST_TEST(result.skipped_files == 1);
    BOOST_TEST(result.bytes == 8000);
    BOOST_TEST(result.tokens == 8001);
    BOOST_TEST(result.vocabulary == 256);
    BOOST_TEST(result.checksum == hash64(expected.data(), expected.size()));
    BOOST_TEST((tokens_as_text(out) == expected));
    const TokenFileInfo info = read_token_file_info(out);
    BOOST_TEST(info.tokenizer_kind == "bytes");
    BOOST_TEST(info.token_count == 8001);
    BOOST_TEST(info.document_count == 2);
    BOOST_TEST(info.byte_count == 8000);
    BOOST_TEST(info.byte_entropy == result.byte_entropy);
    BOOST_TEST(info.conditional_entropy == result.conditional_entropy);
    BOOST_TEST(verify_token_file(out) == 8001u + 2 * 8);
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(out).parent_path()))
        BOOST_TEST(entry.path().extension() != ".tmp", entry.path() << " is left behind");

    // HDF5 itself reads the same bytes as the map at the dataset's offset.
    const hdf5::File file = hdf5::File::open(out);
    BOOST_TEST((file.read_text("tokens") == expected));
}

BOOST_AUTO_TEST_CASE(progress_has_one_unit) {
    const double mebibyte = 1 << 20;
    BOOST_TEST(progress_text(312 * mebibyte, 1228 * mebibyte, 95 * mebibyte) ==
               "312 of 1,228 MiB (25 %), 95 MiB/s, 9.6 s left");
    BOOST_TEST(progress_text(1e6, 3e6, 1536) == "977 of 2,930 KiB (33 %), 1.5 KiB/s, 21 min 42 s left");
    BOOST_TEST(progress_text(100, 200, 50) == "100 of 200 B (50 %), 50 B/s, 2.0 s left");
}

BOOST_AUTO_TEST_CASE(entropies_agree_with_the_definitions) {
    const TemporaryFolder folder;
    std::string noise = sample_text(300000);
    for (std::size_t i = 70000; i < noise.size(); i += 7) noise[i] = static_cast<char>(i * i % 251);
    for (const std::string& text :
         {sample_text(300001), noise, std::string("ab"), std::string("a"), std::string(1000, 'x')}) {
        auto options = options_for({folder.write("text.txt", text)}, folder.path("tokens.h5"));
        options.batch_bytes = 70000;
        const PackResult result = pack(options);
        BOOST_TEST(std::abs(result.byte_entropy - naive_entropy(text)) < 1e-10);
        BOOST_TEST(std::abs(result.conditional_entropy - naive_conditional_entropy(text)) < 1e-10);
    }
}

BOOST_AUTO_TEST_CASE(packing_does_not_depend_on_threads_or_batches) {
    const TemporaryFolder folder;
    folder.write("in/a.txt", sample_text(600000));
    folder.write("in/b.txt", sample_text(70000, 2));
    folder.write("in/c.txt", "c");
    std::vector<std::string> tokenizers = {"bytes"};
#ifdef LOCKSTEP_SENTENCEPIECE
    auto training = options_for({folder.path("in/b.txt")}, folder.path("small.h5"));
    training.train_tokenizer = 330;
    pack(training);
    tokenizers.push_back(
        folder.write("own.model", read_token_file_info(folder.path("small.h5")).tokenizer_files.front().contents));
#endif
    const int before = threads();
    for (const auto& tokenizer : tokenizers) {
        std::vector<std::string> files;
        for (const int count : {1, 2, 3})
            for (const std::size_t batch : {std::size_t{100000}, std::size_t{1} << 25}) {
                set_threads(count);
                auto options = options_for({folder.path("in")}, folder.path("tokens.h5"));
                options.tokenizer = tokenizer;
                options.batch_bytes = batch;
                pack(options);
                files.push_back(everything_in(folder.path("tokens.h5")));
                BOOST_TEST(verify_token_file(folder.path("tokens.h5")) > 0u);
            }
        set_threads(before);
        for (const auto& file : files) BOOST_TEST((file == files.front()));
    }
}

#ifdef LOCKSTEP_SENTENCEPIECE
BOOST_AUTO_TEST_CASE(sentencepiece_tokens_give_the_documents_back) {
    const TemporaryFolder folder;
    const std::string first = sample_text(200000), second = sample_text(1000, 2);
    auto options = options_for({folder.write("a.txt", first), folder.write("b.txt", second)}, folder.path("tokens.h5"));
    options.train_tokenizer = 340;
    pack(options);
    const TokenFile file(folder.path("tokens.h5"));
    const auto tokenizer = make_tokenizer("sentencepiece", file.info().tokenizer_files);
    std::vector<std::vector<std::int32_t>> documents(1);
    for (std::int64_t i = 0; i < file.info().token_count; ++i) {
        std::uint16_t token = 0;
        std::memcpy(&token, file.tokens() + 2 * i, 2);
        if (token == tokenizer->boundary())
            documents.emplace_back();
        else
            documents.back().push_back(token);
    }
    BOOST_REQUIRE(documents.size() == 2u);
    BOOST_TEST((tokenizer->decode(documents[0]) == first));
    BOOST_TEST((tokenizer->decode(documents[1]) == second));
}
#endif

BOOST_AUTO_TEST_CASE(bad_input_is_a_usage_error_and_leaves_no_file) {
    const TemporaryFolder folder;
    const std::string text = folder.write("text.txt", "some text"), out = folder.path("tokens.h5");
    check_error([&] { pack(options_for({}, out)); }, ExitCode::usage, {"no path"});
    check_error([&] { pack(options_for({folder.folder("empty")}, out)); }, ExitCode::usage, {"no text"});
    check_error([&] { pack(options_for({text}, folder.path("no/such/out.h5"))); }, ExitCode::usage, {"does not exist"});
    check_error([&] { pack(options_for({text}, folder.folder("empty"))); }, ExitCode::usage, {"folder"});
    check_error([&] { pack(options_for({text}, text)); }, ExitCode::usage, {"is one of the input files"});
    auto both = options_for({text}, out);
    both.tokenizer = "x.model";
    both.train_tokenizer = 300;
    check_error([&] { pack(both); }, ExitCode::usage, {"mutually exclusive"});
    both.train_tokenizer = 0;
    check_error([&] { pack(both); }, ExitCode::usage, {"x.model", "does not exist"});
    BOOST_TEST(!std::filesystem::exists(out));
    BOOST_TEST(read_file(text) == "some text");
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_the_older_file) {
    const TemporaryFolder folder;
    const std::string out = folder.path("tokens.h5");
    pack(options_for({folder.write("a.txt", "first")}, out));
    const std::string large = folder.write("b.txt", sample_text(300000));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit unlimited{}, limited{};
    BOOST_REQUIRE(getrlimit(RLIMIT_FSIZE, &unlimited) == 0);
    limited = unlimited;
    limited.rlim_cur = 100000;
    BOOST_REQUIRE(setrlimit(RLIMIT_FSIZE, &limited) == 0);
    check_error([&] { pack(options_for({large}, out)); }, ExitCode::fault, {out + ".", ".tmp"});
    BOOST_REQUIRE(setrlimit(RLIMIT_FSIZE, &unlimited) == 0);
    BOOST_TEST(tokens_as_text(out) == "first");
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(out).parent_path()))
        BOOST_TEST(entry.path().extension() != ".tmp", entry.path() << " is left behind");
}

BOOST_AUTO_TEST_CASE(damaged_token_files_are_told) {
    const TemporaryFolder folder;
    const std::string out = folder.path("tokens.h5");
    pack(options_for({folder.write("a.txt", sample_text(100000))}, out));
    const std::string good = read_file(out);
    const TokenFileInfo info = read_token_file_info(out);
    for (const std::size_t bytes :
         {good.size() - 1, good.size() / 2, std::size_t{100}, std::size_t{4}, std::size_t{0}}) {
        const std::string path = folder.write("short.h5", good.substr(0, bytes));
        check_error([&] { read_token_file_info(path); }, ExitCode::damaged, {path});
        check_error([&] { verify_token_file(path); }, ExitCode::damaged, {path});
    }
    for (const std::uint64_t at : {info.offset, info.offset + 50000, info.offset + info.token_bytes() - 1}) {
        std::string flipped = good;
        flipped[at] = static_cast<char>(flipped[at] ^ 1);
        const std::string path = folder.write("flipped.h5", flipped);
        check_error([&] { verify_token_file(path); }, ExitCode::damaged, {path, "checksum"});
    }
}

BOOST_AUTO_TEST_CASE(other_files_are_no_token_files) {
    const TemporaryFolder folder;
    const std::string other = folder.path("other.h5"), text = folder.write("a.txt", "text");
    {
        auto file = hdf5::File::create(other);
        file.write_attribute("/", "format", std::string("lockstep-checkpoint"));
        file.close();
    }
    BOOST_TEST(!is_token_file(other));
    BOOST_TEST(!is_token_file(text));
    check_error([&] { read_token_file_info(other); }, ExitCode::usage, {other, "lockstep-checkpoint"});
    check_error([&] { read_token_file_info(text); }, ExitCode::damaged, {text});
    check_error([&] { is_token_file(folder.path("none")); }, ExitCode::usage, {"does not exist"});
    pack(options_for({text}, folder.path("tokens.h5")));
    BOOST_TEST(is_token_file(folder.path("tokens.h5")));
}

BOOST_AUTO_TEST_CASE(a_file_of_the_first_version_has_its_sentencepiece_model) {
    const std::string path = tests::source_path("tests/compatibility/sentencepiece-tokens.h5");
    const TokenFileInfo info = read_token_file_info(path);
    BOOST_TEST(hdf5::File::open(path).read_integer("/", "format_version") == 1);
    BOOST_TEST(info.tokenizer_kind == "sentencepiece");
    BOOST_TEST(info.vocabulary == 290);
    BOOST_TEST_REQUIRE(info.tokenizer_files.size() == 1u);
    BOOST_TEST(info.tokenizer_files.front().name == "tokenizer.model");
    BOOST_TEST(info.tokenizer_files.front().contents == hdf5::File::open(path).read_text("tokenizer_model"));
    BOOST_TEST(verify_token_file(path) == info.token_bytes() + info.tokenizer_files.front().contents.size());
    const TemporaryFolder folder;
    std::string damaged = read_file(path);
    damaged[damaged.find(info.tokenizer_files.front().contents) + 9] ^= 1;
    check_error([&] { read_token_file_info(folder.write("damaged.h5", damaged)); }, ExitCode::damaged,
                {"tokenizer_model"});
}

BOOST_AUTO_TEST_CASE(contents_that_cannot_be_are_damage) {
    const TemporaryFolder folder;
    const auto write = [&](hdf5::ElementType type, std::int64_t count, std::int64_t version,
                           const std::string& checksum) {
        const std::string path = folder.path("made.h5");
        auto file = hdf5::File::create(path);
        file.write_attribute("/", "format", std::string("lockstep-tokens"));
        file.write_attribute("/", "format_version", version);
        for (const char* name : {"program_version", "tokenizer_kind"})
            file.write_attribute("/", name, std::string("bytes"));
        file.write_attribute("/", "checksum", checksum);
        for (const char* name : {"document_count", "byte_count"}) file.write_attribute("/", name, std::int64_t{1});
        for (const char* name : {"byte_entropy", "conditional_entropy"}) file.write_attribute("/", name, 1.0);
        file.write_attribute("/", "vocabulary", std::int64_t{256});
        file.write_attribute("/", "token_count", count);
        file.create_dataset("tokens", type, {100});
        file.close();
        return path;
    };
    const std::string sum(16, '0');
    BOOST_TEST(read_token_file_info(write(hdf5::ElementType::uint8, 100, 1, sum)).token_count == 100);
    check_error([&] { read_token_file_info(write(hdf5::ElementType::fp32, 100, 1, sum)); }, ExitCode::damaged,
                {"fp32"});
    check_error([&] { read_token_file_info(write(hdf5::ElementType::uint8, 99, 1, sum)); }, ExitCode::damaged, {"99"});
    check_error([&] { read_token_file_info(write(hdf5::ElementType::uint8, 100, 1, "xyz")); }, ExitCode::damaged,
                {"xyz"});
    check_error([&] { read_token_file_info(write(hdf5::ElementType::uint8, 100, 3, sum)); }, ExitCode::usage,
                {"version 3"});
}

BOOST_AUTO_TEST_CASE(sizes_that_wrap_around_fit_into_no_file) {
    TokenFileInfo info;
    info.token_width = 4;
    info.token_count = 100;
    info.offset = 2048;
    BOOST_TEST(info.fits_into(2448));
    BOOST_TEST(!info.fits_into(2447));
    BOOST_TEST(!info.fits_into(100));
    info.token_count = std::int64_t{1} << 62;  // four bytes each are none, in 64 bits
    BOOST_TEST(!info.fits_into(1 << 20));
    info.token_count = 1;
    info.offset = ~std::uint64_t{0} - 1;
    BOOST_TEST(!info.fits_into(1 << 20));
}
