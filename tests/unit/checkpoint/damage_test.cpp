// A checkpoint with a bit flipped or its end cut off is either read as it was or reported as damaged.
#define BOOST_TEST_MODULE checkpoint_damage
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "base/random.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint_fixture.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;

namespace {

enum class Outcome { as_it_was, reported, silently_different };

struct Reference {
    std::string path;
    Contents contents;
    Tensors tensors;

    Reference(const std::string& name, std::size_t description_bytes)
        : path(in(empty_test_folder(name), 9)), contents(some_contents(9)), tensors(few_small()) {
        contents.run_description.assign(description_bytes, 'r');
        auto writer = solo_writer(test_folder(name));
        BOOST_REQUIRE(writer.write_now(contents, tensors.entries));
    }

    Outcome read() const {
        const auto group = cluster::make_solo_group();
        try {
            Tensors found(few_small());
            found.fill(-1);
            checkpoint::verify(path);
            const bool equal =
                same(checkpoint::read_contents(path), contents) && checkpoint::list_tensors(path).size() == 3;
            checkpoint::load(path, found.entries, *group);
            return equal && found == tensors ? Outcome::as_it_was : Outcome::silently_different;
        } catch (const Error& error) {
            if (error.code() == ExitCode::damaged) return Outcome::reported;
            BOOST_TEST_MESSAGE(error.what());
            return Outcome::silently_different;
        }
    }

    // Flips one bit, reads, and flips it back.
    Outcome with_flipped(std::size_t byte, int bit) const {
        flip_bit(path, byte, bit);
        const Outcome outcome = read();
        flip_bit(path, byte, bit);
        return outcome;
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(all_over_a_small_file_bits_are_guarded_or_padding) {
    const Reference reference("flips", 200);
    const std::size_t bytes = bytes_of(reference.path).size();
    const RandomStream random(11, "bits");
    std::size_t reported = 0, padding = 0;
    for (std::size_t byte = 0; byte < bytes; byte += 1 + random.bits(2 * byte) % 5) {  // every third on average
        const int bit = static_cast<int>(random.bits(2 * byte + 1) % 8);
        const Outcome outcome = reference.with_flipped(byte, bit);
        if (outcome == Outcome::silently_different)
            BOOST_ERROR("byte " << byte << ", bit " << bit << " went unnoticed");
        (outcome == Outcome::reported ? reported : padding) += 1;
    }
    BOOST_TEST_MESSAGE(bytes << " bytes: " << reported << " flips reported, " << padding << " in padding");
    BOOST_TEST(reported > 1500u);
    BOOST_TEST(padding > 0u);
    BOOST_TEST((reference.read() == Outcome::as_it_was));
}

// HDF5 keeps attributes of 64 KiB and more outside of what it checks itself.
BOOST_AUTO_TEST_CASE(long_attributes_are_guarded_too) {
    const Reference reference("flips_long", 70'000);
    const std::size_t text = place_of(reference.path, std::string(1000, 'r'));
    BOOST_REQUIRE(text != std::string::npos);
    for (std::size_t byte = text - 80; byte < text + 8; ++byte)  // the attribute's own header, then text
        for (int bit = 0; bit < 8; ++bit) {
            const Outcome outcome = reference.with_flipped(byte, bit);
            if (outcome == Outcome::silently_different)
                BOOST_ERROR("byte " << byte << ", bit " << bit << " went unnoticed");
        }
    for (const std::size_t offset : {100, 5'000, 69'999})
        BOOST_TEST((reference.with_flipped(text + offset, 3) == Outcome::reported));
    const RandomStream random(12, "places");
    const std::size_t bytes = bytes_of(reference.path).size();
    for (std::uint64_t i = 0; i < 300; ++i) {
        const std::size_t byte = random.bits(2 * i) % bytes;
        const int bit = static_cast<int>(random.bits(2 * i + 1) % 8);
        if (reference.with_flipped(byte, bit) == Outcome::silently_different)
            BOOST_ERROR("byte " << byte << ", bit " << bit << " went unnoticed");
    }
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_of_a_tensor_is_reported) {
    const Reference reference("flips_tensor", 200);
    for (const auto& entry : reference.tensors.entries) {
        const std::string value(static_cast<const char*>(entry.value.data()), entry.value.bytes());
        const std::size_t place = place_of(reference.path, value);
        BOOST_REQUIRE(place != std::string::npos);
        for (std::size_t byte = 0; byte < value.size(); ++byte)
            BOOST_TEST((reference.with_flipped(place + byte, static_cast<int>(byte % 8)) == Outcome::reported));
    }
}

BOOST_AUTO_TEST_CASE(names_in_other_bytes_than_ascii_are_reported) {
    const std::string path = in(empty_test_folder("names"), 9);
    for (const char* name : {"parameters/caf\xe9", "parameters/a\nb"})
        BOOST_CHECK_EXCEPTION(checkpoint::write_header(path, some_contents(9), {{name, {2}}}), Error,
                              [](const Error& error) {
                                  return error.code() == ExitCode::damaged &&
                                         std::string(error.what()).find("not printable ASCII") != std::string::npos;
                              });
}

// Whoever writes a file by other means may give it a checksum that matches.
BOOST_AUTO_TEST_CASE(counters_that_cannot_be_are_reported) {
    const auto refused = [](const std::string& name, const auto& change) {
        Contents contents = some_contents(9);
        change(contents.state);
        const std::string folder = empty_test_folder("forged-" + name);
        auto writer = solo_writer(folder);
        BOOST_TEST(!writer.write_now(contents, Tensors(few_small()).entries), name << " is taken");
    };
    refused("step", [](checkpoint::State& state) { state.step = -5; });
    refused("cursor", [](checkpoint::State& state) { state.data_cursor = -1; });
    refused("updates", [](checkpoint::State& state) { state.optimizer_steps = std::int64_t{1} << 62; });
    refused("scale", [](checkpoint::State& state) { state.loss_scale = std::nan(""); });
    refused("zero-scale", [](checkpoint::State& state) { state.loss_scale = 0; });
}

BOOST_AUTO_TEST_CASE(a_file_cut_anywhere_is_reported) {
    const Reference reference("cut", 200);
    const std::string whole = bytes_of(reference.path);
    for (std::size_t length = 0; length < whole.size(); length += length < 200 ? 1 : 37) {
        std::filesystem::resize_file(reference.path, length);
        if (reference.read() != Outcome::reported) BOOST_ERROR("cut to " << length << " bytes went unnoticed");
        write_bytes(reference.path, whole);
    }
    std::filesystem::resize_file(reference.path, whole.size() - 1);
    BOOST_TEST((reference.read() == Outcome::reported));
}

BOOST_AUTO_TEST_CASE(a_file_with_a_stretch_of_zeros_is_reported) {
    const Reference reference("zeros", 70'000);
    const std::string whole = bytes_of(reference.path);
    for (std::size_t start = 0; start < whole.size(); start += 4096) {
        std::string holed = whole;
        std::fill_n(holed.begin() + static_cast<std::ptrdiff_t>(start),
                    std::min<std::size_t>(4096, whole.size() - start), '\0');
        if (holed == whole) continue;
        write_bytes(reference.path, holed);
        if (reference.read() == Outcome::silently_different)
            BOOST_ERROR("zeros from byte " << start << " went unnoticed");
    }
}
