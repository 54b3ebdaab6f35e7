// status.json of a run folder, as lockstep inspect prints it. Parts: the file, or none where it is empty; a key.
#include "run_status.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_text.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;
using Json = nlohmann::ordered_json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t longest_key = 256;       // of a command line
    constexpr std::uint64_t with_indentation = 3;  // times the bytes, of what is deep in lists
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 2);
    const std::string folder = fuzz::folder() + "/run", key = parts[1].substr(0, longest_key);
    const std::string file = fuzz::write_file("run/status.json", parts[0]);
    if (parts[0].empty()) std::filesystem::remove(file);
    fuzz::judge(with_indentation * size, [&] {
        const std::string printed = commands::run_status(folder, {}, TableFormat::json);
        fuzz::require(parse_json<Json>(printed) == parse_json<Json>(parts[0]), "what is printed is another status");
        commands::run_status(folder, {}, TableFormat::text);
        commands::run_status(folder, {key}, TableFormat::text);
    });
    return 0;
}
