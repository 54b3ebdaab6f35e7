#define BOOST_TEST_MODULE data_separate_documents
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.hpp"
#include "data/pack.hpp"
#include "megatron_files.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::tests;

namespace {

using Tokens = std::vector<std::int32_t>;

DatasetOptions options_for(const std::vector<std::string>& paths, std::int64_t length, std::int64_t alignment = 1) {
    DatasetOptions options;
    options.paths = paths;
    options.length = length;
    options.random = false;
    options.separate_documents = true;
    options.document_alignment = alignment;
    return options;
}

struct Sample {
    Tokens inputs, targets, starts, ends;
    explicit Sample(std::size_t length) : inputs(length), targets(length), starts(length), ends(length) {}
};

Sample fetch(const Dataset& dataset, std::int64_t length, std::int64_t number) {
    Sample sample(static_cast<std::size_t>(length));
    dataset.fetch(number, sample.inputs.data(), sample.targets.data());
    dataset.fetch_documents(number, sample.starts.data(), sample.ends.data());
    const auto counted = length - std::count(sample.targets.begin(), sample.targets.end(), -1);
    BOOST_TEST(dataset.counted_tokens(number) == counted);
    return sample;
}

// Documents of these lengths as a Megatron pair. Every token of the file is another one, from `first` on.
std::string numbered(const TemporaryFolder& folder, const std::string& name, const std::vector<std::size_t>& lengths,
                     std::int64_t first = 0) {
    MegatronData data;
    data.code = 4;
    data.documents = {0};
    for (const std::size_t length : lengths) {
        Sequence& sequence = data.sequences.emplace_back();
        for (std::size_t i = 0; i < length; ++i) sequence.push_back(first++);
        data.documents.push_back(static_cast<std::int64_t>(data.sequences.size()));
    }
    folder.write(name + ".bin", megatron_tokens(data));
    folder.write(name + ".idx", megatron_index(data));
    return folder.path(name);
}

// The padded stream, position by position.
struct Position {
    std::int32_t token, target;
    std::size_t document;
};

std::vector<Position> padded_stream(const std::vector<std::size_t>& lengths, std::size_t alignment) {
    std::vector<Position> stream;
    std::int32_t token = 0;
    for (std::size_t document = 0; document < lengths.size(); ++document) {
        for (std::size_t i = 0; i < lengths[document]; ++i, ++token)
            stream.push_back({token, i + 1 < lengths[document] ? token + 1 : -1, document});
        if (lengths[document] > 0)
            while (stream.size() % alignment != 0) stream.push_back({token - 1, -1, document});
    }
    return stream;
}

void check_windows(const Dataset& dataset, std::int64_t length, const std::vector<Position>& stream) {
    const auto windows = static_cast<std::int64_t>(stream.size()) / length;
    BOOST_REQUIRE(dataset.windows() == windows);
    for (std::int64_t window = 0; window < windows; ++window) {
        const Sample found = fetch(dataset, length, window);
        Sample expected(static_cast<std::size_t>(length));
        const auto* begin = &stream[static_cast<std::size_t>(window * length)];
        for (std::size_t i = 0; i < expected.inputs.size(); ++i) {
            expected.inputs[i] = begin[i].token;
            expected.targets[i] = begin[i].target;
            std::size_t first = i, last = i + 1;
            while (first > 0 && begin[first - 1].document == begin[i].document) --first;
            while (last < expected.inputs.size() && begin[last].document == begin[i].document) ++last;
            expected.starts[i] = static_cast<std::int32_t>(first);
            expected.ends[i] = static_cast<std::int32_t>(last);
        }
        BOOST_TEST(found.inputs == expected.inputs, boost::test_tools::per_element());
        BOOST_TEST(found.targets == expected.targets, boost::test_tools::per_element());
        BOOST_TEST(found.starts == expected.starts, boost::test_tools::per_element());
        BOOST_TEST(found.ends == expected.ends, boost::test_tools::per_element());
    }
}

void check_values(const Tokens& found, const Tokens& expected) {
    BOOST_TEST(found == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_window_has_whole_documents_and_parts_of_others) {
    const TemporaryFolder folder;
    const std::string path = numbered(folder, "a", {3, 1, 7});
    const Dataset plain(options_for({path}, 5));
    BOOST_TEST(plain.separates_documents());
    BOOST_TEST(plain.windows() == 2);
    BOOST_TEST(plain.documents() == 3);
    BOOST_TEST(plain.tokens() == 11);
    BOOST_TEST(plain.padding_share() == 0);
    const Sample first = fetch(plain, 5, 0), second = fetch(plain, 5, 1);
    check_values(first.inputs, {0, 1, 2, 3, 4});
    check_values(first.targets, {1, 2, -1, -1, 5});  // the last is the next window's
    check_values(first.starts, {0, 0, 0, 3, 4});
    check_values(first.ends, {3, 3, 3, 4, 5});
    check_values(second.inputs, {5, 6, 7, 8, 9});
    check_values(second.targets, {6, 7, 8, 9, 10});
    check_values(second.starts, {0, 0, 0, 0, 0});
    check_values(second.ends, {5, 5, 5, 5, 5});

    const Dataset aligned(options_for({path}, 8, 4));
    BOOST_TEST(aligned.windows() == 2);
    BOOST_TEST(aligned.padding_share() == 5.0 / 16);
    const Sample before = fetch(aligned, 8, 0), after = fetch(aligned, 8, 1);
    check_values(before.inputs, {0, 1, 2, 2, 3, 3, 3, 3});
    check_values(before.targets, {1, 2, -1, -1, -1, -1, -1, -1});
    check_values(before.starts, {0, 0, 0, 0, 4, 4, 4, 4});
    check_values(before.ends, {4, 4, 4, 4, 8, 8, 8, 8});
    check_values(after.inputs, {4, 5, 6, 7, 8, 9, 10, 10});
    check_values(after.targets, {5, 6, 7, 8, 9, 10, -1, -1});
    BOOST_TEST(aligned.counted_tokens(0) == 2);
    BOOST_TEST(aligned.counted_tokens(1) == 6);
}

BOOST_AUTO_TEST_CASE(any_documents_tile_windows_of_any_length) {
    const TemporaryFolder folder;
    std::minstd_rand random(1);
    for (int i = 0; i < 60; ++i) {
        std::vector<std::size_t> lengths(1 + random() % 12);
        for (std::size_t& length : lengths) length = random() % 4 == 0 ? random() % 3 : random() % 40;
        lengths.push_back(100);  // longer than several windows
        if (i % 2 == 0) lengths.push_back(random() % 2);
        const std::string path = numbered(folder, "a", lengths);
        for (const std::int64_t alignment : {1, 2, 3, 16})
            for (const std::int64_t times : {1, 2, 5}) {
                const auto stream = padded_stream(lengths, static_cast<std::size_t>(alignment));
                check_windows(Dataset(options_for({path}, alignment * times, alignment)), alignment * times, stream);
            }
    }
}

BOOST_AUTO_TEST_CASE(every_pair_of_adjacent_tokens_of_a_document_is_one_target) {
    const TemporaryFolder folder;
    const std::vector<std::size_t> lengths = {1, 2, 33, 16, 0, 15, 17, 200, 1, 48};
    const std::string path = numbered(folder, "a", lengths);
    for (const std::int64_t alignment : {1, 16}) {
        auto options = options_for({path}, 32, alignment);
        options.random = true;
        const Dataset dataset(options);
        const auto stream = padded_stream(lengths, static_cast<std::size_t>(alignment));
        for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
            std::map<std::pair<std::int32_t, std::int32_t>, int> found, expected;
            for (std::size_t i = 0; i < stream.size() / 32 * 32; ++i)
                if (stream[i].target >= 0) expected[{stream[i].token, stream[i].target}] = 1;
            for (std::int64_t i = 0; i < dataset.windows(); ++i) {
                const Sample sample = fetch(dataset, 32, epoch * dataset.windows() + i);
                for (std::size_t k = 0; k < sample.inputs.size(); ++k)
                    if (sample.targets[k] >= 0) ++found[{sample.inputs[k], sample.targets[k]}];
            }
            BOOST_TEST((found == expected));
        }
    }
}

BOOST_AUTO_TEST_CASE(the_boundary_belongs_to_the_document_before_it) {
    const TemporaryFolder folder;
    folder.write("in/a.txt", "abc");
    folder.write("in/b.txt", "de");
    PackOptions packing;
    packing.paths = {folder.path("in")};
    packing.out = folder.path("a.h5");
    pack(packing);
    for (const std::string& path : {folder.path("in"), packing.out}) {
        const Sample sample = fetch(Dataset(options_for({path}, 6)), 6, 0);
        check_values(sample.inputs, {'a', 'b', 'c', 0, 'd', 'e'});
        check_values(sample.targets, {'b', 'c', 0, -1, 'e', -1});
        check_values(sample.ends, {4, 4, 4, 4, 6, 6});
    }
}

BOOST_AUTO_TEST_CASE(mixtures_keep_their_sources_order) {
    const TemporaryFolder folder;
    const std::vector<std::size_t> first = {10, 5, 40, 3}, second = {30, 30, 1};
    DatasetOptions options = options_for({}, 16, 4);
    options.random = true;
    options.mixture = {{{numbered(folder, "a", first)}, 3}, {{numbered(folder, "b", second, 1000)}, 1}};
    const Dataset dataset(options);
    BOOST_TEST(dataset.documents() == 7);
    BOOST_TEST(dataset.windows() == 4 + 4);
    BOOST_TEST(dataset.sources()[1].windows == 4);
    BOOST_TEST(dataset.padding_share() == (2.0 + 3 + 1 + 2 + 2 + 3) / (64 + 68));
    std::vector<std::int64_t> counts(2);
    for (std::int64_t i = 0; i < 64; ++i) {
        const Sample sample = fetch(dataset, 16, i);
        ++counts[sample.inputs[0] >= 1000 ? 1 : 0];
        BOOST_TEST(dataset.counts_before(i + 1) == counts, boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(the_last_windows_are_split_off) {
    const TemporaryFolder folder;
    const std::vector<std::size_t> lengths = {10, 30, 7, 50, 3, 20};
    const std::string path = numbered(folder, "a", lengths);
    const Dataset whole(options_for({path}, 8, 4));
    Dataset training(options_for({path}, 8, 4));
    const Dataset validation = training.split_off(0.25);
    BOOST_TEST(whole.windows() == 16);
    BOOST_TEST(training.windows() == 12);
    BOOST_TEST(validation.windows() == 4);
    BOOST_TEST(validation.documents() == 6);
    for (std::int64_t i = 0; i < 16; ++i) {
        const Sample expected = fetch(whole, 8, i),
                     found = i < 12 ? fetch(training, 8, i) : fetch(validation, 8, i - 12);
        BOOST_TEST((found.inputs == expected.inputs && found.targets == expected.targets));
        BOOST_TEST((found.starts == expected.starts && found.ends == expected.ends));
    }
}

BOOST_AUTO_TEST_CASE(a_sample_is_the_same_whoever_asks) {
    const TemporaryFolder folder;
    const std::string path = numbered(folder, "a", {10, 30, 7, 50, 3, 20, 300, 1, 1, 90});
    auto options = options_for({path}, 16, 4);
    options.random = true;
    const Dataset dataset(options), again(options);
    std::vector<Tokens> found(200);
    std::vector<std::thread> workers;
    for (std::size_t worker = 0; worker < 4; ++worker)
        workers.emplace_back([&, worker] {
            for (std::size_t i = worker; i < found.size(); i += 4) {
                found[i].resize(64);
                dataset.fetch(static_cast<std::int64_t>(i), &found[i][0], &found[i][16]);
                dataset.fetch_documents(static_cast<std::int64_t>(i), &found[i][32], &found[i][48]);
            }
        });
    for (auto& worker : workers) worker.join();
    for (std::size_t i = found.size(); i-- > 0;) {
        const Sample sample = fetch(again, 16, static_cast<std::int64_t>(i));
        Tokens all = sample.inputs;
        for (const Tokens* more : {&sample.targets, &sample.starts, &sample.ends})
            all.insert(all.end(), more->begin(), more->end());
        BOOST_TEST((all == found[i]));
    }
}

BOOST_AUTO_TEST_CASE(joined_documents_count_every_token) {
    const TemporaryFolder folder;
    auto options = options_for({numbered(folder, "a", {3, 1, 7})}, 5);
    options.separate_documents = false;
    const Dataset dataset(options);
    BOOST_TEST(!dataset.separates_documents());
    BOOST_TEST(dataset.documents() == 0);
    BOOST_TEST(dataset.padding_share() == 0);
    BOOST_TEST(dataset.counted_tokens(0) == 5);
    BOOST_TEST(dataset.counted_tokens(7) == 5);
}

BOOST_AUTO_TEST_CASE(the_checksum_covers_where_documents_are) {
    const TemporaryFolder folder;
    const std::string path = numbered(folder, "a", {10, 30, 7});
    const auto checksum = [](DatasetOptions options, bool separate) {
        options.separate_documents = separate;
        return Dataset(options).checksum();
    };
    const auto plain = options_for({path}, 16), aligned = options_for({path}, 16, 4);
    BOOST_TEST(checksum(plain, true) != checksum(plain, false));
    BOOST_TEST(checksum(plain, true) != checksum(aligned, true));
    BOOST_TEST(checksum(aligned, true) != checksum(options_for({path}, 16, 8), true));
    BOOST_TEST(checksum(aligned, true) == checksum(options_for({path}, 8, 4), true));
    BOOST_TEST(checksum(aligned, false) == checksum(plain, false));
    // The same tokens, divided otherwise.
    const std::uint64_t before = checksum(plain, true), joined = checksum(plain, false);
    numbered(folder, "a", {10, 29, 8});
    BOOST_TEST(checksum(plain, true) != before);
    BOOST_TEST(checksum(plain, false) == joined);
    // Of a mixture too.
    auto mixture = options_for({}, 16);
    mixture.mixture = {{{path}, 1}, {{numbered(folder, "b", {40})}, 1}};
    BOOST_TEST(checksum(mixture, true) != checksum(mixture, false));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_a_usage_error) {
    const TemporaryFolder folder;
    const std::string path = numbered(folder, "a", {3, 9}), flat = folder.write("b.bin", as_uint16({1, 2, 3}));
    const auto refused = [](const DatasetOptions& options, const std::vector<std::string>& words) {
        check_error([&] { const Dataset dataset(options); }, ExitCode::usage, words);
    };
    refused(options_for({path}, 13), {"a sample needs 13 tokens, but the data has only 12;"});
    refused(options_for({path}, 20, 4), {"a sample needs 20 tokens, but the data has only 16 with padding;"});
    refused(options_for({flat}, 1), {"[data] train: " + flat, "no document boundaries"});
    BOOST_TEST(Dataset(options_for({path}, 12)).windows() == 1);
    BOOST_TEST(Dataset(options_for({path}, 16, 4)).windows() == 1);
    auto joined = options_for({flat}, 1, 16);
    joined.separate_documents = false;
    BOOST_TEST(Dataset(joined).windows() == 2);
}
