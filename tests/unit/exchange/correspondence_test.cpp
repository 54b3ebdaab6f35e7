// Where elements of ours lie in theirs, in pieces that begin and end anywhere.
#define BOOST_TEST_MODULE correspondence
#include "exchange/correspondence.hpp"

#include <sys/resource.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "exchange/shards.hpp"
#include "files.hpp"

using namespace lockstep;
using namespace lockstep::exchange;
using namespace lockstep::tests;

BOOST_AUTO_TEST_CASE(pieces_of_ours_are_pieces_of_theirs) {
    const TemporaryFolder folder;
    for (const bool transposed : {false, true})
        for (const std::int64_t rows : {1, 3, 4})
            for (const std::int64_t columns : {1, 2, 5}) {
                // The second of three joined tensors.
                Correspondence names{"w", {rows, columns}, "theirs", transposed, rows, 3 * rows};
                const std::int64_t count = rows * columns;
                std::vector<float> theirs(static_cast<std::size_t>(3 * count));
                std::iota(theirs.begin(), theirs.end(), 0.0f);
                std::vector<StoredTensor> stored = {{"theirs", "F32", names.their_shape(), 0, theirs.size() * 4}};
                BOOST_TEST((names.their_shape() == (transposed ? Shape{columns, 3 * rows} : Shape{3 * rows, columns})));
                const std::string path = (folder.path() / "x.safetensors").string();
                write_bytes(path, safetensors_beginning(stored) +
                                      std::string(reinterpret_cast<const char*>(theirs.data()), theirs.size() * 4));
                const SafetensorsFile file(path);
                const TensorFiles::Place place{&file, file.tensors().data()};
                for (std::int64_t first = 0; first < count; ++first)
                    for (std::int64_t end = first + 1; end <= count; ++end) {
                        std::vector<float> ours(static_cast<std::size_t>(end - first), -1);
                        read_ours(names, place, first, end - first, ours.data());
                        for (std::int64_t i = first; i < end; ++i) {
                            const std::int64_t row = i / columns + rows, column = i % columns;
                            const std::int64_t expected = transposed ? column * 3 * rows + row : row * columns + column;
                            BOOST_TEST_REQUIRE(ours[static_cast<std::size_t>(i - first)] ==
                                               static_cast<float>(expected));
                        }
                        // The way out puts each back where it was.
                        std::vector<float> written(theirs.size(), -1);
                        write_theirs(names, first, end - first, ours.data(),
                                     [&](std::int64_t at, std::int64_t run, const float* values) {
                                         BOOST_TEST_REQUIRE(at + run <= static_cast<std::int64_t>(written.size()));
                                         std::copy_n(values, run, written.begin() + at);
                                     });
                        std::int64_t put = 0;
                        for (std::size_t i = 0; i < written.size(); ++i) {
                            put += written[i] >= 0;
                            BOOST_TEST_REQUIRE((written[i] < 0 || written[i] == theirs[i]));
                        }
                        BOOST_TEST_REQUIRE(put == end - first);
                    }
            }
}

BOOST_AUTO_TEST_CASE(shards_end_where_the_next_tensor_would_be_too_much) {
    std::vector<Correspondence> names;
    for (const std::int64_t rows : {4, 4, 9, 1, 1})
        names.push_back(
            {"p" + std::to_string(names.size()), {rows, 2}, "t" + std::to_string(names.size()), false, 0, rows});
    const auto shards = plan_shards(names, Type::fp32, 64);
    BOOST_TEST_REQUIRE(shards.size() == 3u);
    BOOST_TEST(shards[0].name == "model-00001-of-00003.safetensors");
    BOOST_TEST(shards[0].tensors.size() == 2u);
    BOOST_TEST(shards[1].tensors.size() == 1u);  // larger than a shard may be: alone
    BOOST_TEST(shards[2].tensors.size() == 2u);
    BOOST_TEST(plan_shards(names, Type::bf16, 1000).size() == 1u);
    BOOST_TEST(plan_shards(names, Type::bf16, 1000)[0].name == "model.safetensors");
    BOOST_TEST(plan_shards(names, Type::fp32, 1).size() == 5u);
    const std::string index = index_text(shards);
    BOOST_TEST((index.find("\"total_size\": 152") != std::string::npos), index);
    BOOST_TEST((index.find("\"t3\": \"model-00003-of-00003.safetensors\"") != std::string::npos), index);
    // Ours that are joined in one of theirs count once.
    const std::vector<Correspondence> joined = {{"q", {2, 2}, "qk", false, 0, 4}, {"k", {2, 2}, "qk", false, 2, 4}};
    BOOST_TEST(plan_shards(joined, Type::fp32, 1000)[0].tensors.size() == 1u);
}

BOOST_AUTO_TEST_CASE(more_shards_than_files_may_be_open_are_written) {
    const TemporaryFolder folder;
    constexpr int shard_count = 200;
    std::vector<Correspondence> names;
    for (int i = 0; i < shard_count; ++i)
        names.push_back({"p" + std::to_string(i), {2}, "t" + std::to_string(i), false, 0, 2});
    const auto shards = plan_shards(names, Type::fp32, 8);
    BOOST_TEST_REQUIRE(shards.size() == 200u);
    ShardWriter writer(folder.path().string(), names, shards, Type::fp32);
    writer.make_files();
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit low = before;
    low.rlim_cur = 100;
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    // One value each, and later the other, into files that were closed meanwhile.
    for (const int element : {0, 1})
        for (int i = 0; i < shard_count; ++i) {
            const float value = static_cast<float>(2 * i + element);
            writer.write("p" + std::to_string(i), element, 1, &value);
        }
    writer.finish();
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int i = 0; i < shard_count; ++i) {
        const SafetensorsFile file((folder.path() / shards[static_cast<std::size_t>(i)].name).string());
        float values[2];
        std::memcpy(values, file.data(file.tensors()[0]), sizeof values);
        BOOST_TEST(values[0] == static_cast<float>(2 * i));
        BOOST_TEST(values[1] == static_cast<float>(2 * i + 1));
    }
}

BOOST_AUTO_TEST_CASE(values_beyond_bf16_are_refused) {
    const TemporaryFolder folder;
    const std::vector<Correspondence> names = {{"p", {2}, "t", false, 0, 2}};
    const auto shards = plan_shards(names, Type::bf16, 1000);
    ShardWriter writer(folder.path().string(), names, shards, Type::bf16);
    writer.make_files();
    const float infinity = std::numeric_limits<float>::infinity();
    const float fits[] = {0x1.FEFFFEp127f, -infinity}, lost[] = {1.0f, 0x1.FFp127f};
    writer.write("p", 0, 2, fits);
    check_error([&] { writer.write("p", 0, 2, lost); }, ExitCode::usage, "bf16 cannot hold (at most 3.3895e38)");
    writer.finish();
    const SafetensorsFile file((folder.path() / shards[0].name).string());
    std::uint16_t values[2];
    std::memcpy(values, file.data(file.tensors()[0]), sizeof values);
    BOOST_TEST(values[0] == 0x7f7f);  // the largest finite one
    BOOST_TEST(values[1] == 0xff80);
}

BOOST_AUTO_TEST_CASE(values_beyond_fp16_are_refused) {
    const TemporaryFolder folder;
    const std::vector<Correspondence> names = {{"p", {2}, "t", false, 0, 2}};
    const auto shards = plan_shards(names, Type::fp16, 1000);
    ShardWriter writer(folder.path().string(), names, shards, Type::fp16);
    writer.make_files();
    const float fits[] = {65519.0f, -65504.0f}, lost[] = {1.0f, -65520.0f};
    writer.write("p", 0, 2, fits);
    check_error([&] { writer.write("p", 0, 2, lost); }, ExitCode::usage, "-65520");
    writer.finish();
    BOOST_TEST(fs::file_size(folder.path() / shards[0].name) == shards[0].file_bytes);
}
