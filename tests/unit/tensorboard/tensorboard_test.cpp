// Event files byte for byte, and what becomes of them across launches and on a full disk.
#define BOOST_TEST_MODULE tensorboard
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "mounted_memory.hpp"
#include "tensorboard/crc32c.hpp"
#include "tensorboard/event.hpp"
#include "tensorboard/event_file.hpp"
#include "tensorboard_events.hpp"

using namespace lockstep;
using namespace lockstep::tests;
namespace fs = std::filesystem;

namespace {

class Folder {
  public:
    Folder() : path_(fs::temp_directory_path() / ("lockstep-tensorboard-" + std::to_string(::getpid()))) {
        fs::remove_all(path_);
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string path() const { return path_.string(); }
    // By name, as TensorBoard reads them.
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().string());
        std::sort(names.begin(), names.end());
        return names;
    }

  private:
    fs::path path_;
};

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string hexadecimal(const std::string& bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (const char byte : bytes) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[byte & 0xf];
    }
    return text;
}

}  // namespace

// RFC 3720, B.4, and the check value of the catalogue of CRCs.
BOOST_AUTO_TEST_CASE(checksums_of_known_vectors) {
    using tensorboard::crc32c;
    BOOST_TEST(crc32c("") == 0u);
    BOOST_TEST(crc32c("123456789") == 0xE3069283u);
    BOOST_TEST(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
    BOOST_TEST(crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
    std::string rising;
    for (char i = 0; i < 32; ++i) rising += i;
    BOOST_TEST(crc32c(rising) == 0x46DD794Eu);
    std::string falling(rising.rbegin(), rising.rend());
    BOOST_TEST(crc32c(falling) == 0x113FDB5Cu);
}

// As TensorBoard's own writer makes them of the same events (EventFileWriter of tensorboard 2.21).
BOOST_AUTO_TEST_CASE(records_are_those_of_tensorboards_own_writer) {
    BOOST_TEST(hexadecimal(tensorboard::version_record(1.5)) ==
               "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
    BOOST_TEST(hexadecimal(tensorboard::start_record(2.5, 300)) ==
               "100000000000000095fbfe1809000000000000044010ac023a0208017d05b37d");
    BOOST_TEST(
        hexadecimal(tensorboard::scalars_record(3.5, 7, {{"train/loss", 0.25}, {"speed", -2e6}})) ==
        "2e00000000000000c5cb57fa090000000000000c4010072a210a110a0a747261696e2f6c6f7373150000803e0a0c0a057370656564150024f4c931a90de7");
}

BOOST_AUTO_TEST_CASE(an_independent_reader_finds_what_was_written) {
    const double infinite = std::numeric_limits<double>::infinity();
    const std::string bytes = tensorboard::version_record(1e9) +
                              tensorboard::scalars_record(1e9 + 0.25, 1'000'000'000'000,
                                                          {{"a", 1e-7}, {"b", infinite}, {"c", std::nan("")}}) +
                              tensorboard::scalars_record(1e9 + 1, 2, {}) +
                              tensorboard::text_record(1e9 + 2, 3, "notes", std::string(300, 'x') + "\n`ü`");
    const std::vector<BoardEvent> events = events_of(bytes);
    BOOST_TEST_REQUIRE(events.size() == 4u);
    BOOST_TEST(events[0].file_version == "brain.Event:2");
    BOOST_TEST(events[1].wall_time == 1e9 + 0.25);
    BOOST_TEST(events[1].step == 1'000'000'000'000);
    BOOST_TEST(events[1].scalars.at("a") == 1e-7f);
    BOOST_TEST(std::isinf(events[1].scalars.at("b")));
    BOOST_TEST(std::isnan(events[1].scalars.at("c")));
    BOOST_TEST(events[2].scalars.empty());
    BOOST_TEST(events[3].texts.at("notes") == std::string(300, 'x') + "\n`ü`");
    // The reader sees damage wherever it is.
    for (std::size_t at = 0; at < bytes.size(); at += 7) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ 4);
        BOOST_CHECK_THROW(events_of(damaged), std::runtime_error);
    }
}

BOOST_AUTO_TEST_CASE(code_is_shown_as_it_is) {
    BOOST_TEST(tensorboard::as_code("[a]\n# b\nc = \"```\"") == "    [a]\n    # b\n    c = \"```\"");
}

BOOST_AUTO_TEST_CASE(a_later_launch_takes_back_what_it_repeats) {
    const Folder folder;
    for (const std::int64_t first : {1, 5, 5, 3}) {
        tensorboard::EventFile file(folder.path(), first);
        file.add_text(first, "run_description", "from " + std::to_string(first));
        for (std::int64_t step = first; step < first + 6; ++step)
            file.add_scalars(step, {{"loss", static_cast<double>(10 * first + step)}});
    }
    BOOST_TEST_REQUIRE(folder.files().size() == 4u);
    Board board;
    for (const std::string& file : folder.files()) board.add(events_of(read(file)));
    const std::map<std::int64_t, float> losses = {{1, 11}, {2, 12}, {3, 33}, {4, 34},
                                                  {5, 35}, {6, 36}, {7, 37}, {8, 38}};
    BOOST_TEST((board.scalars.at("loss") == losses));
    BOOST_TEST((board.descriptions == std::map<std::int64_t, std::string>{{1, "from 1"}, {3, "from 3"}}));
}

// Clocks of nodes differ; what counts is the order of the names.
BOOST_AUTO_TEST_CASE(a_launch_on_a_node_whose_clock_is_behind_comes_later) {
    const Folder folder;
    fs::create_directories(folder.path());
    const std::string ahead = folder.path() + "/events.out.tfevents.4102444800.elsewhere";
    for (const char* name : {"/events.out.tfevents.99999999999999999999.a", "/events.out.tfevents.x", "/notes"})
        std::ofstream(folder.path() + name) << "";
    std::ofstream(ahead) << "";
    const tensorboard::EventFile file(folder.path(), 1);
    bool found = false;
    for (const std::string& name : folder.files())
        found = found || name.find("/events.out.tfevents.4102444801.") != std::string::npos;
    BOOST_TEST(found);
}

BOOST_AUTO_TEST_CASE(where_no_file_can_be_made_nothing_is_written) {
    const Folder folder;
    std::ofstream(folder.path()) << "a file where the folder should be";
    tensorboard::EventFile file(folder.path(), 1);
    BOOST_CHECK_NO_THROW(file.add_scalars(1, {{"loss", 1}}));
    BOOST_TEST(fs::is_regular_file(folder.path()));
}

BOOST_AUTO_TEST_CASE(on_a_full_disk_whole_records_are_lost) {
    const Folder folder;
    const MountedMemory room(folder.path(), "size=64k");
    if (!room.mounted()) return;
    tensorboard::EventFile file(folder.path(), 1);
    std::ofstream(folder.path() + "/fill") << std::string(64 << 10, 'x');
    for (std::int64_t step = 1; step <= 500; ++step) file.add_scalars(step, {{"a long name of a scalar", 1}});
    fs::remove(folder.path() + "/fill");
    for (std::int64_t step = 501; step <= 510; ++step) file.add_scalars(step, {{"a long name of a scalar", 1}});
    Board board;
    for (const std::string& name : folder.files()) board.add(events_of(read(name)));
    const auto& shown = board.scalars.at("a long name of a scalar");
    for (std::int64_t step = 501; step <= 510; ++step) BOOST_TEST(shown.count(step) == 1u);
    BOOST_TEST(shown.count(500) == 0u);
}
