// The checksum by which adapters know their model: as checkpoints/README.md defines it, whatever the model is stored
// in.
#define BOOST_TEST_MODULE stored_model
#include <bit>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "base/hash.hpp"
#include "exchange/convert.hpp"
#include "exchange/stored_model.hpp"
#include "files.hpp"
#include "places.hpp"

using namespace lockstep;
using namespace lockstep::tests;

namespace {

const std::string models = source_path("tests/hugging_face/");

std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9;
    x ^= x >> 27;
    x *= 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

std::string expected_checksum(const exchange::Folder& folder) {
    const checkpoint::Source source = folder.source();
    std::uint64_t sum = 0;
    for (const exchange::Correspondence& each : folder.names())
        for (std::int64_t i = 0; i < element_count(each.shape); ++i) {
            float value = 0;
            source("parameters/" + each.ours, i, 1, &value);
            const std::uint64_t name = hash64(each.ours.data(), each.ours.size());
            sum += mix(mix(name + static_cast<std::uint64_t>(i)) + std::bit_cast<std::uint32_t>(value));
        }
    return hash_text(sum);
}

std::string checksum_of(const std::string& path) {
    const auto group = cluster::make_solo_group();
    return exchange::StoredModel(path).checksum(*group);
}

}  // namespace

BOOST_DATA_TEST_CASE(a_folder_and_its_checkpoint_have_one_checksum,
                     boost::unit_test::data::make({"gpt2", "llama", "ttt-linear"}), model) {
    const TemporaryFolder place;
    const auto group = cluster::make_solo_group();
    const std::string folder = models + model, file = place.path() / "model.h5";
    exchange::folder_to_checkpoint(folder, file, *group);
    const std::string expected = expected_checksum(exchange::Folder(folder));
    BOOST_TEST(checksum_of(folder) == expected);
    BOOST_TEST(checksum_of(file) == expected);
}

BOOST_AUTO_TEST_CASE(adapters_do_not_count) {
    const TemporaryFolder place;
    const auto group = cluster::make_solo_group();
    const std::string file = place.path() / "model.h5";
    exchange::folder_to_checkpoint(models + "llama-adapters", file, *group, {}, models + "llama");
    BOOST_TEST(checksum_of(file) == checksum_of(models + "llama"));
    BOOST_TEST(checksum_of(file) != checksum_of(models + "gpt2"));
}
