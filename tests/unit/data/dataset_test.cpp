#define BOOST_TEST_MODULE data_dataset
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.hpp"
#include "data/pack.hpp"
#include "data/token_file.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

DatasetOptions options_for(const std::vector<std::string>& paths, std::int64_t length, bool random = false) {
    DatasetOptions options;
    options.paths = paths;
    options.length = length;
    options.random = random;
    return options;
}

std::vector<std::int32_t> inputs_of(const Dataset& dataset, std::int64_t length, std::int64_t number) {
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(length)), targets(inputs.size());
    dataset.fetch(number, inputs.data(), targets.data());
    BOOST_TEST(std::equal(inputs.begin() + 1, inputs.end(), targets.begin()));
    inputs.push_back(targets.back());
    return inputs;  // and the last target
}

// All windows in the order of the text, as text.
std::string text_of(const Dataset& dataset, std::int64_t length) {
    std::string text;
    for (std::int64_t i = 0; i < dataset.windows(); ++i) {
        auto tokens = inputs_of(dataset, length, i);
        if (i + 1 < dataset.windows()) tokens.pop_back();
        for (const auto token : tokens) text += static_cast<char>(token);
    }
    return text;
}

std::string packed(const TemporaryFolder& folder, const std::vector<std::string>& paths, const std::string& name,
                   const std::string& tokenizer = "bytes", std::int64_t train_tokenizer = 0) {
    PackOptions options;
    options.paths = paths;
    options.out = folder.path(name);
    options.tokenizer = tokenizer;
    options.train_tokenizer = train_tokenizer;
    pack(options);
    return options.out;
}

// Which window each sample of an epoch is, from the first token of windows that all begin with another one.
std::vector<std::int32_t> order_of(const Dataset& dataset, std::int64_t epoch) {
    std::vector<std::int32_t> order;
    for (std::int64_t i = 0; i < dataset.windows(); ++i)
        order.push_back(inputs_of(dataset, 4, epoch * dataset.windows() + i)[0]);
    return order;
}

std::string numbered_windows(const TemporaryFolder& folder, std::uint16_t count) {
    std::vector<std::uint16_t> tokens;
    for (std::uint16_t i = 0; i < count; ++i) tokens.insert(tokens.end(), {i, 0, 0, 0});
    tokens.push_back(0);
    return folder.write("numbered.bin", as_uint16(tokens));
}

std::string llm_c_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    return {reinterpret_cast<const char*>(header.data()), 1024};
}

}  // namespace

BOOST_AUTO_TEST_CASE(packed_and_plain_text_give_the_same_tokens_in_order) {
    const TemporaryFolder folder;
    std::string expected;
    for (int i = 0; i < 5; ++i) {  // one of them large enough to be mapped
        const std::string text =
            sample_text(i == 2 ? 1200000 : 700 + static_cast<std::size_t>(i), static_cast<unsigned>(i));
        folder.write("in/" + std::to_string(i), text);
        expected += (i > 0 ? std::string(1, '\0') : "") + text;
    }
    const std::string file = packed(folder, {folder.path("in")}, "tokens.h5");
    for (const std::int64_t length : {1, 7, 64, 1000}) {
        const Dataset from_file(options_for({file}, length)), from_text(options_for({folder.path("in")}, length));
        BOOST_TEST(from_file.tokens() == static_cast<std::int64_t>(expected.size()));
        BOOST_TEST(from_text.tokens() == from_file.tokens());
        BOOST_TEST(from_file.windows() == (static_cast<std::int64_t>(expected.size()) - 1) / length);
        if (length < 64) continue;  // one by one it is too slow to compare all
        const std::string start = expected.substr(0, static_cast<std::size_t>(from_file.windows() * length + 1));
        BOOST_TEST((text_of(from_file, length) == start));
        BOOST_TEST((text_of(from_text, length) == start));
    }
    BOOST_TEST(Dataset(options_for({file}, 8)).tokenizer_kind() == "bytes");
    BOOST_TEST(Dataset(options_for({file}, 8)).vocabulary() == 256);
}

BOOST_AUTO_TEST_CASE(sources_follow_each_other_in_the_order_given) {
    const TemporaryFolder folder;
    const std::string a = packed(folder, {folder.write("a.txt", "aaaaa")}, "a.h5");
    const std::string b = folder.write("b.txt", "bbb"), c = folder.write("c.txt", "cc"),
                      empty = folder.write("empty.txt", "");
    BOOST_TEST(text_of(Dataset(options_for({a, b, c}, 1)), 1) == std::string("aaaaabbb\0cc", 11));
    BOOST_TEST(text_of(Dataset(options_for({c, a, empty, b}, 1)), 1) == "ccaaaaabbb");
    BOOST_TEST(text_of(Dataset(options_for({a, a}, 3)), 3) == "aaaaaaaaaa");
}

BOOST_AUTO_TEST_CASE(every_epoch_is_another_permutation) {
    const TemporaryFolder folder;
    const std::string path = numbered_windows(folder, 100);
    const Dataset dataset(options_for({path}, 4, true));
    BOOST_REQUIRE(dataset.windows() == 100);
    std::set<std::vector<std::int32_t>> orders;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
        const auto order = order_of(dataset, epoch);
        BOOST_TEST(std::set<std::int32_t>(order.begin(), order.end()).size() == 100u);
        orders.insert(order);
    }
    auto other_seed = options_for({path}, 4, true);
    other_seed.seed = 2;
    orders.insert(order_of(Dataset(other_seed), 0));
    BOOST_TEST(orders.size() == 5u);
    std::vector<std::int32_t> identity(100);
    std::iota(identity.begin(), identity.end(), 0);
    BOOST_TEST(orders.count(identity) == 0u);
    const Dataset sequential(options_for({path}, 4));
    BOOST_TEST(order_of(sequential, 0) == identity, boost::test_tools::per_element());
    BOOST_TEST(order_of(sequential, 3) == identity, boost::test_tools::per_element());
    BOOST_TEST(dataset.epoch_of(99) == 0);
    BOOST_TEST(dataset.epoch_of(100) == 1);
}

BOOST_AUTO_TEST_CASE(a_sample_is_the_same_whatever_was_asked_before_and_by_whom) {
    const TemporaryFolder folder;
    const std::string path = numbered_windows(folder, 60);
    const Dataset dataset(options_for({path}, 4, true));
    const auto forward = order_of(dataset, 1);
    const Dataset again(options_for({path}, 4, true));
    for (std::int64_t i = 59; i >= 0; --i)
        BOOST_TEST(inputs_of(again, 4, 60 + i)[0] == forward[static_cast<std::size_t>(i)]);
    std::vector<std::int32_t> found(60);
    std::vector<std::thread> workers;
    for (std::int64_t worker = 0; worker < 4; ++worker)
        workers.emplace_back([&, worker] {
            std::vector<std::int32_t> inputs(4), targets(4);
            for (std::int64_t i = worker; i < 60; i += 4) {
                dataset.fetch(60 + i, inputs.data(), targets.data());
                found[static_cast<std::size_t>(i)] = inputs[0];
            }
        });
    for (auto& worker : workers) worker.join();
    BOOST_TEST(found == forward, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_last_windows_are_split_off) {
    const TemporaryFolder folder;
    const std::string path = numbered_windows(folder, 30);
    struct Case {
        double fraction;
        std::int64_t taken;
    };
    for (const auto& one : {Case{0.1, 3}, Case{0.11, 4}, Case{0.001, 1}, Case{0.999, 29}}) {
        Dataset train(options_for({path}, 4, true));
        const Dataset validation = train.split_off(one.fraction);
        BOOST_TEST(validation.windows() == one.taken);
        BOOST_TEST(train.windows() == 30 - one.taken);
        std::vector<std::int32_t> expected(static_cast<std::size_t>(one.taken));
        std::iota(expected.begin(), expected.end(), static_cast<std::int32_t>(30 - one.taken));
        BOOST_TEST(order_of(validation, 0) == expected, boost::test_tools::per_element());
        BOOST_TEST(order_of(validation, 1) == expected, boost::test_tools::per_element());
        for (const auto window : order_of(train, 0)) BOOST_TEST(window < 30 - one.taken);
    }
    Dataset one_window(options_for({path}, 120));
    check_error([&] { one_window.split_off(0.5); }, ExitCode::usage, {"120"});
    Dataset whole(options_for({path}, 4));
    for (const double fraction : {0.0, 1.0, -0.5, std::nan("")})
        check_error([&] { whole.split_off(fraction); }, ExitCode::usage, {"fraction"});
}

BOOST_AUTO_TEST_CASE(flat_token_files_with_and_without_header) {
    const TemporaryFolder folder;
    const std::vector<std::uint16_t> tokens = {5, 50256, 0, 65535, 7, 8, 9};
    const std::vector<std::int32_t> expected(tokens.begin(), tokens.end());
    const std::string plain = folder.write("plain.bin", as_uint16(tokens));
    const std::string headed = folder.write("headed.bin", llm_c_header(20240520, 1, 7) + as_uint16(tokens));
    std::string wide_bytes(4 * tokens.size(), '\0');
    std::memcpy(wide_bytes.data(), expected.data(), wide_bytes.size());
    const std::string wide = folder.write("wide.bin", llm_c_header(20240801, 7, 7) + wide_bytes);
    for (const auto& path : {plain, headed, wide}) {
        const Dataset dataset(options_for({path}, 6));
        BOOST_TEST(dataset.tokens() == 7);
        BOOST_TEST(dataset.vocabulary() == 65536);
        BOOST_TEST(dataset.tokenizer_kind() == "");
        BOOST_TEST(inputs_of(dataset, 6, 0) == expected, boost::test_tools::per_element());
    }
    const std::string small = folder.write("small.bin", as_uint16({1, 2, 3}));
    BOOST_TEST(Dataset(options_for({small}, 1)).vocabulary() == 4);
    const Dataset both(options_for({small, headed}, 9));
    BOOST_TEST(both.vocabulary() == 65536);
    BOOST_TEST(inputs_of(both, 9, 0)[3] == 5);
}

BOOST_AUTO_TEST_CASE(damaged_flat_token_files_are_told) {
    const TemporaryFolder folder;
    const auto check = [&](const std::string& bytes, const std::vector<std::string>& words) {
        const std::string path = folder.write("damaged.bin", bytes);
        check_error([&] { Dataset(options_for({path}, 1)); }, ExitCode::damaged, words);
    };
    check("", {"empty"});
    check("abc", {"truncated"});
    check(llm_c_header(20240520, 1, 8) + as_uint16({1, 2, 3}), {"8 tokens", "3"});
    check(llm_c_header(20240520, 1, 2) + as_uint16({1, 2, 3}), {"2 tokens", "3"});
    check(llm_c_header(20240520, 2, 3) + as_uint16({1, 2, 3}), {"version 2"});
    check(llm_c_header(20240520, 1, 3).substr(0, 500), {"header"});
    check(llm_c_header(20240520, 1, 0), {"no tokens"});
}

BOOST_AUTO_TEST_CASE(bad_lists_are_usage_errors_that_name_the_key) {
    const TemporaryFolder folder;
    const std::string text = folder.write("a.txt", "0123456789"), flat = folder.write("a.bin", as_uint16({1, 2, 3}));
    const auto check = [&](const std::vector<std::string>& paths, std::int64_t length,
                           const std::vector<std::string>& words) {
        auto options = options_for(paths, length);
        options.key = "[data] validation";
        check_error([&] { Dataset dataset(options); }, ExitCode::usage, words);
    };
    const std::string missing = folder.path("missing");
    check({}, 4, {"[data] validation", "no files"});
    check({text, missing}, 4, {"[data] validation", missing, "does not exist"});
    check({folder.folder("empty")}, 4, {"[data] validation", "no text"});
    check({folder.write("nothing", "")}, 4, {"[data] validation", "empty"});
    check({text}, 10, {"[data] validation", "10"});
    check({text}, 4096, {"4,096", "10"});
    check({text}, 0, {"0"});
    check({text, flat}, 1, {text, flat, "cannot be read together"});
    check({folder.write("b.txt", std::string("\0", 1))}, 1, {"not text"});
    auto tokenizer = options_for({text}, 1);
    tokenizer.tokenizer = missing;
    check_error([&] { Dataset dataset(tokenizer); }, ExitCode::usage, {missing});
    BOOST_TEST(Dataset(options_for({text}, 9)).windows() == 1);
}

BOOST_AUTO_TEST_CASE(damaged_token_files_are_told_when_opened_or_read) {
    const TemporaryFolder folder;
    const std::string path = packed(folder, {folder.write("a.txt", sample_text(70000))}, "tokens.h5"),
                      good = read_file(path);
    for (const std::size_t bytes : {good.size() - 1, good.size() / 2, std::size_t{0}}) {
        const std::string cut = folder.write("cut.h5", good.substr(0, bytes));
        check_error([&] { Dataset dataset(options_for({cut}, 4)); }, ExitCode::damaged, {cut});
    }
}

BOOST_AUTO_TEST_CASE(the_checksum_is_of_contents_not_names) {
    const TemporaryFolder folder;
    const auto checksum = [](const std::vector<std::string>& paths) {
        return Dataset(options_for(paths, 1)).checksum();
    };
    const std::string one = folder.write("one.txt", "some text"), copy = folder.write("copy.txt", "some text");
    const std::string other = folder.write("other.txt", "some texT");
    BOOST_TEST(checksum({one}) == checksum({copy}));
    BOOST_TEST(checksum({one}) != checksum({other}));
    BOOST_TEST(checksum({one, other}) != checksum({other, one}));
    const std::string packed_one = packed(folder, {one}, "one.h5"), packed_copy = packed(folder, {copy}, "copy.h5");
    const std::string packed_other = packed(folder, {other}, "other.h5");
    BOOST_TEST(checksum({packed_one}) == checksum({packed_copy}));
    BOOST_TEST(checksum({packed_one}) != checksum({packed_other}));
    const std::string flat = folder.write("a.bin", as_uint16({1, 2, 3})),
                      changed = folder.write("b.bin", as_uint16({1, 2, 4}));
    BOOST_TEST(checksum({flat}) != checksum({changed}));
}

#ifdef LOCKSTEP_SENTENCEPIECE
BOOST_AUTO_TEST_CASE(sentencepiece_text_is_tokenized_as_pack_does) {
    const TemporaryFolder folder;
    const std::string a = folder.write("a.txt", sample_text(30000)), b = folder.write("b.txt", sample_text(20000, 2));
    const std::string file = packed(folder, {a, b}, "tokens.h5", "bytes", 330);
    const TokenFileInfo info = read_token_file_info(file);
    auto from_text = options_for({a, b}, 16);
    from_text.tokenizer = folder.write("own.model", info.tokenizer_files.front().contents);
    const Dataset text(from_text), tokens(options_for({file}, 16));
    BOOST_TEST(text.tokens() == tokens.tokens());
    BOOST_TEST((text.tokenizer_files() == tokens.tokenizer_files()));
    for (std::int64_t i = 0; i < tokens.windows(); ++i)
        BOOST_TEST(inputs_of(text, 16, i) == inputs_of(tokens, 16, i), boost::test_tools::per_element());

    auto from_kept = options_for({a, b}, 16);
    from_kept.kept_tokenizer = make_tokenizer(info.tokenizer_kind, info.tokenizer_files);
    BOOST_TEST(Dataset(from_kept).tokens() == tokens.tokens());
    BOOST_TEST(Dataset(from_kept).vocabulary() == 330);

    // Sources of different tokenizers or models do not mix.
    const std::string bytes = packed(folder, {a}, "bytes.h5"), larger = packed(folder, {a}, "larger.h5", "bytes", 331);
    check_error([&] { Dataset(options_for({file, bytes}, 4)); }, ExitCode::usage, {file, bytes});
    check_error([&] { Dataset(options_for({file, larger}, 4)); }, ExitCode::usage, {"330", "331"});

    // A token that the vocabulary lacks, and a model that was changed.
    std::string bad = read_file(file);
    bad[info.offset + 1] = '\x7F';
    const Dataset damaged(options_for({folder.write("bad.h5", bad)}, 16));
    check_error([&] { inputs_of(damaged, 16, 0); }, ExitCode::damaged, {"bad.h5", "330"});
    std::string model_changed = read_file(file);
    const auto at = model_changed.find(info.tokenizer_files.front().contents);
    BOOST_REQUIRE(at != std::string::npos);
    model_changed[at + 100] = static_cast<char>(model_changed[at + 100] ^ 1);
    const std::string changed = folder.write("changed.h5", model_changed);
    check_error([&] { Dataset(options_for({changed}, 4)); }, ExitCode::damaged, {"tokenizer/tokenizer.model"});
}
#endif

BOOST_AUTO_TEST_CASE(the_tokens_of_json_lines_have_one_limit_for_all_sources) {
    const TemporaryFolder folder;
    const std::string line = "{\"text\": \"" + std::string(60, 'x') + "\"}\n";
    const std::string first = folder.write("a.jsonl", line), second = folder.write("b.jsonl", line),
                      text = folder.write("c.txt", std::string(1000, 'y'));
    DatasetOptions options = options_for({first}, 4);
    options.most_json_lines_bytes = 100;
    BOOST_TEST(Dataset(options).tokens() == 60);
    // In a list, with other data between, and in a mixture. Text is not limited: it says how large it is.
    const std::vector<std::string> words = {"b.jsonl and the files after it amount to more than", "of tokens",
                                            "lockstep pack"};
    options.paths = {first, packed(folder, {text}, "c.h5"), second};
    check_error([&] { Dataset dataset(options); }, ExitCode::usage, words);
    options.paths.clear();
    options.mixture = {{{first}, 1}, {{text}, 1}, {{second}, 1}};
    check_error([&] { Dataset dataset(options); }, ExitCode::usage, words);
    options.mixture.pop_back();
    BOOST_TEST(Dataset(options).tokens() == 1060);
}
