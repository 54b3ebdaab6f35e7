// Files from outside, damaged at random: each is read, or refused with a sentence, without memory beyond what its size
// justifies. LOCKSTEP_DAMAGED_FILES: how many (default 1500).
#define BOOST_TEST_MODULE damage
#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <new>

#include "base/random.hpp"
#include "checkpoint/stream.hpp"
#include "exchange/folder.hpp"
#include "exchange/peft.hpp"
#include "files.hpp"
#include "model/parameter_description.hpp"
#include "places.hpp"
#include "unit/data/damage.hpp"

using namespace lockstep;
using namespace lockstep::tests;

namespace {

// Bytes that operator new has handed out since reset(); what is freed again counts, as a bound from above.
std::atomic<std::uint64_t> allocated = 0, largest = 0;

void* allocate(std::size_t bytes) {
    allocated += bytes;
    if (bytes > largest) largest = bytes;
    if (void* memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
    return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
    return allocate(bytes);
}
// For std::stable_sort's buffer.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return allocate(bytes);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace {

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : random_(seed, "damage") {}
    std::size_t below(std::size_t bound) {
        return std::min(static_cast<std::size_t>(random_.uniform(drawn_++) * static_cast<double>(bound)), bound - 1);
    }

  private:
    RandomStream random_;
    std::uint64_t drawn_ = 0;
};

// What a number, a word or a sign of JSON may become.
const std::vector<std::string> replacements = {"0",
                                               "-1",
                                               "1e308",
                                               "18446744073709551615",
                                               "9223372036854775807",
                                               "null",
                                               "true",
                                               "\"\"",
                                               "[]",
                                               "{}",
                                               "[[[[[[[[",
                                               "{\"a\":",
                                               "\xff",
                                               "4611686018427387904",
                                               "\"F64\"",
                                               "65536"};

void damage(std::string& bytes, Dice& dice) {
    if (bytes.empty()) return;
    const std::size_t at = dice.below(bytes.size());
    switch (dice.below(7)) {
        case 0:  // one bit
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << dice.below(8)));
            break;
        case 1:
            bytes.resize(at);
            break;
        case 2:
            bytes.insert(at, std::string(1 + dice.below(40), static_cast<char>(dice.below(256))));
            break;
        case 3:
            bytes.erase(at, 1 + dice.below(40));
            break;
        case 4: {  // a part twice
            const std::string part = bytes.substr(at, 1 + dice.below(200));
            bytes.insert(dice.below(bytes.size()), part);
            break;
        }
        case 5: {  // a number or a word
            const std::size_t digit = bytes.find_first_of("0123456789", std::min(at, bytes.size() - 1));
            const std::size_t begin = digit == std::string::npos ? at : digit;
            const std::size_t end = std::min(bytes.find_first_not_of("0123456789", begin), bytes.size());
            bytes.replace(begin, end - begin, replacements[dice.below(replacements.size())]);
            break;
        }
        default:  // the first bytes, which hold the length of a header
            bytes[std::min(bytes.size() - 1, dice.below(16))] = static_cast<char>(dice.below(256));
    }
}

// Everything that a conversion would do with it.
void read_parameters(const config::ModelDescription& described, const checkpoint::Source& source) {
    std::vector<float> values;
    for (const auto& parameter : model::describe_parameters(described, model::whole_model(described))) {
        const std::int64_t all = element_count(parameter.shape), count = std::min<std::int64_t>(all, 4096);
        values.resize(static_cast<std::size_t>(count));
        source("parameters/" + parameter.name, all - count, count, values.data());
    }
}
void read_all(const std::string& path) {
    const exchange::Folder folder(path);
    static_cast<void>(folder.contents());
    read_parameters(folder.model(), folder.source());
}
void read_all_beside(const std::string& path, const std::string& base) {
    const exchange::AdapterFolder folder(path, base);
    static_cast<void>(folder.contents());
    read_parameters(folder.model(), folder.source());
}

std::uint64_t bytes_of(const fs::path& folder) {
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder)) bytes += entry.file_size();
    return bytes;
}

}  // namespace

BOOST_AUTO_TEST_CASE(damaged_files_are_refused_with_a_sentence) {
    const long count = damaged_files(1500);
    std::vector<fs::path> cases;
    for (const auto& entry : fs::directory_iterator(source_path("tests/hugging_face")))
        if (entry.is_directory()) cases.push_back(entry.path());
    std::sort(cases.begin(), cases.end());
    BOOST_TEST_REQUIRE(!cases.empty());
    const TemporaryFolder place;
    int refused = 0, read = 0, not_whole = 0;
    for (long i = 0; i < count; ++i) {
        Dice dice(static_cast<std::uint64_t>(i));
        const fs::path& origin = cases[dice.below(cases.size())];
        const fs::path folder = place.path() / "model";
        fs::remove_all(folder);
        fs::create_directories(folder);
        const bool adapters = exchange::is_adapter_folder(origin.string());
        const std::string config_name = adapters ? exchange::adapter_config_name : exchange::config_file_name,
                          tensors_name = adapters ? exchange::adapter_file_name : exchange::single_file_name;
        std::string config = read_bytes(origin / config_name), tensors = read_bytes(origin / tensors_name), index;
        const bool sharded = !adapters && dice.below(3) == 0;
        if (sharded) {
            const exchange::SafetensorsFile file((origin / tensors_name).string());
            exchange::Json map;
            for (const auto& tensor : file.tensors()) map[tensor.name] = "model-00001-of-00001.safetensors";
            index = exchange::Json{{"weight_map", map}}.dump();
        }
        std::vector<std::string*> files = {&config, &tensors, &tensors};
        if (sharded) files.push_back(&index);
        std::string& chosen = *files[dice.below(files.size())];
        for (std::size_t times = 1 + dice.below(3); times > 0; --times) damage(chosen, dice);
        // Most damage lies in the header, which is a small part of the file.
        if (&chosen == &tensors && dice.below(2) == 0 && tensors.size() > 2000) {
            std::string head = tensors.substr(0, 2000);
            damage(head, dice);
            tensors = head + tensors.substr(2000);
        }
        write_bytes(folder / config_name, config);
        write_bytes(folder / (sharded ? "model-00001-of-00001.safetensors" : tensors_name), tensors);
        if (sharded) write_bytes(folder / exchange::index_file_name, index);
        BOOST_TEST_CONTEXT("file " << i << " of " << origin) {
            allocated = largest = 0;
            try {
                if (adapters)
                    read_all_beside(folder.string(), origin.string().substr(0, origin.string().rfind("-adapters")));
                else
                    read_all(folder.string());
                ++read;
            } catch (const Error& error) {
                const bool said = error.code() == ExitCode::usage || error.code() == ExitCode::damaged;
                BOOST_TEST(said, "exit code " << static_cast<int>(error.code()) << ": " << error.what());
                BOOST_TEST(std::string(error.what()).size() < 2000u);
                ++(said ? refused : not_whole);
            }
            const std::uint64_t beside = adapters ? bytes_of(source_path("tests/hugging_face/llama")) : 0;
            const std::uint64_t bytes = bytes_of(folder) + beside, most = 200 * bytes + (8 << 20);
            BOOST_TEST(allocated < most, allocated << " bytes of memory for files of " << bytes);
            BOOST_TEST(largest < 40 * bytes + (1 << 20), largest << " bytes of memory at once for files of " << bytes);
        }
    }
    BOOST_TEST(not_whole == 0);
    BOOST_TEST(refused > count / 3);
    BOOST_TEST_MESSAGE(refused << " refused, " << read << " read");
}
