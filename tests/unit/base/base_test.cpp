#define BOOST_TEST_MODULE base
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"
#include "base/table.hpp"

using namespace lockstep;

// Known answers from Salmon et al. 2011 (the published test vectors of Philox4x32-10).
BOOST_AUTO_TEST_CASE(philox_gives_the_published_numbers) {
    const auto zeros = philox4x32({0, 0, 0, 0}, {0, 0});
    const std::array<std::uint32_t, 4> expected_zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    BOOST_TEST(zeros == expected_zeros);
    const auto ones = philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u});
    const std::array<std::uint32_t, 4> expected_ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    BOOST_TEST(ones == expected_ones);
}

BOOST_AUTO_TEST_CASE(normal_numbers_have_mean_zero_and_variance_one) {
    const RandomStream stream(7, "test");
    double sum = 0, squares = 0;
    constexpr int count = 20000;
    for (int i = 0; i < count; ++i) {
        const double value = stream.normal(static_cast<std::uint64_t>(i));
        sum += value;
        squares += value * value;
    }
    BOOST_TEST(std::abs(sum / count) < 0.03);
    BOOST_TEST(std::abs(squares / count - 1) < 0.05);
}

BOOST_AUTO_TEST_CASE(streams_differ_by_seed_and_purpose) {
    BOOST_TEST(RandomStream(1, "a").bits(0) != RandomStream(2, "a").bits(0));
    BOOST_TEST(RandomStream(1, "a").bits(0) != RandomStream(1, "b").bits(0));
    BOOST_TEST(RandomStream(1, "a").bits(5) == RandomStream(1, "a").bits(5));
}

BOOST_AUTO_TEST_CASE(permutation_visits_every_index_once) {
    for (const std::uint64_t count : {1u, 2u, 3u, 31u, 64u, 1000u}) {
        const RandomPermutation permutation(3, "epoch 0", count);
        std::set<std::uint64_t> seen;
        for (std::uint64_t i = 0; i < count; ++i) seen.insert(permutation(i));
        BOOST_TEST(seen.size() == count);
        BOOST_TEST(*seen.rbegin() == count - 1);
    }
}

BOOST_AUTO_TEST_CASE(permutation_mixes) {
    const RandomPermutation permutation(3, "epoch 0", 10000);
    std::int64_t stays_near = 0;
    for (std::uint64_t i = 0; i + 1 < 10000; ++i)
        if (std::abs(static_cast<double>(permutation(i)) - static_cast<double>(permutation(i + 1))) < 100) ++stays_near;
    BOOST_TEST(stays_near < 400);  // 2 % of neighbours stay within 1 % of the range by chance
}

BOOST_AUTO_TEST_CASE(hash_in_pieces_equals_hash_at_once) {
    const std::string text = "the quick brown fox jumps over the lazy dog";
    Hasher hasher;
    hasher.add(text.data(), 10);
    hasher.add(text.data() + 10, text.size() - 10);
    BOOST_TEST(hasher.digest() == hash64(text.data(), text.size()));
    BOOST_TEST(hash_text(255).size() == 16u);
}

BOOST_AUTO_TEST_CASE(numbers_read_well) {
    BOOST_TEST(with_commas(124298064) == "124,298,064");
    BOOST_TEST(with_commas(-1234) == "-1,234");
    BOOST_TEST(with_commas(12) == "12");
    BOOST_TEST(human_bytes(1536) == "1.50 KiB");
    BOOST_TEST(human_seconds(245) == "4 min 05 s");
    BOOST_TEST(human_rate(1.5e9, "FLOP") == "1.5 GFLOP/s");
}

BOOST_AUTO_TEST_CASE(nearest_name_finds_misspellings_only) {
    BOOST_TEST(nearest_name("schedule.pek_lr", {"schedule.peak_lr", "schedule.final_lr"}) == "schedule.peak_lr");
    BOOST_TEST(nearest_name("zzz", {"schedule.peak_lr"}) == "");
    BOOST_TEST(nearest_name("form", {"from"}) == "from");  // two letters swapped
}

BOOST_AUTO_TEST_CASE(table_prints_in_four_formats) {
    Table table({{"name", "name"}, {"seconds", "seconds, s", 2}});
    table.add_row({std::string("a,b"), 1.25});
    table.add_row({std::string("c"), std::monostate{}});
    BOOST_TEST(table.print(TableFormat::csv) == "name,seconds\n\"a,b\",1.25\nc,\n");
    BOOST_TEST(table.print(TableFormat::markdown) ==
               "| name | seconds, s |\n|---|---:|\n| a,b  |       1.25 |\n| c    |          - |\n");
    BOOST_TEST(table.print(TableFormat::text) == "name  seconds, s\na,b         1.25\nc              -\n");
    BOOST_TEST(table.print(TableFormat::json).find("\"seconds\": null") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(wide_tables_are_folded) {
    const auto table_of = [](int columns) {
        std::vector<Column> list = {{"ranks", "ranks"}};
        for (int c = 0; c < columns; ++c)
            list.push_back({fmt::format("c{}", c), fmt::format("mean of column {}, s", c), 1});
        Table table(list);
        for (const int ranks : {1, 1024}) {
            std::vector<Cell> cells = {std::int64_t{ranks}};
            for (int c = 0; c < columns; ++c) cells.emplace_back(ranks + 0.5);
            table.add_row(std::move(cells));
        }
        return table;
    };
    const auto lines_of = [](const std::string& text) {
        std::vector<std::string> lines;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);) lines.push_back(line);
        return lines;
    };
    BOOST_TEST(lines_of(table_of(5).print(TableFormat::text)).size() == 3u);  // 5 × 22 + 5 characters
    const auto titles = lines_of(table_of(10).print(TableFormat::text));
    BOOST_REQUIRE(titles.size() == 5u);
    BOOST_TEST(titles[0].starts_with("         mean of    mean of"));
    BOOST_TEST(titles[1].starts_with("       column 0,  column 1,"));
    BOOST_TEST(titles[2].starts_with("ranks          s          s"));
    BOOST_TEST(titles[4].starts_with("1,024     1024.5     1024.5"));
    const std::string folded = table_of(30).print(TableFormat::text);
    std::size_t values = 0, keys = 0;
    for (const std::string& line : lines_of(folded)) {
        BOOST_TEST(line.size() <= widest_text, line);
        keys += line.starts_with("1,024") ? 1 : 0;
        for (std::size_t at = line.find("1024.5"); at != std::string::npos; at = line.find("1024.5", at + 1)) ++values;
    }
    BOOST_TEST(values == 30u);
    BOOST_TEST(keys == 3u);
    BOOST_TEST(lines_of(table_of(30).print(TableFormat::markdown)).size() == 4u);
    // A sentence is not broken.
    Table sentence({{"meaning", "meaning"}, {"value", "value"}});
    sentence.add_row({std::string(150, 'x'), std::int64_t{1}});
    BOOST_TEST(lines_of(sentence.print(TableFormat::text)).size() >= 2u);
}

BOOST_AUTO_TEST_CASE(errors_carry_their_exit_code) {
    BOOST_CHECK_EXCEPTION(throw damaged_error("{} is truncated", "x.h5"), Error, [](const Error& error) {
        return error.code() == ExitCode::damaged && std::string(error.what()) == "x.h5 is truncated";
    });
    BOOST_CHECK_THROW(table_format("xml"), Error);
}
