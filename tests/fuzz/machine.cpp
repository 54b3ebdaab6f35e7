// Machine descriptions. An input of letters, digits and hyphens alone is a name of one that is shipped, or not.
#include "config/machine.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

#include "fuzz/harness.hpp"

using namespace lockstep;

namespace {

bool is_name(const std::string& text) {
    std::error_code none;
    return !text.empty() && !std::filesystem::exists(text, none) &&
           std::all_of(text.begin(), text.end(),
                       [](unsigned char character) { return std::isalnum(character) != 0 || character == '-'; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(fuzz::text_of(data, size));
    const std::string path = fuzz::write_file("machine.toml", text);
    fuzz::judge(size, [&] {
        const config::Machine read = config::read_machine(is_name(text) ? text : path);
        static_cast<void>(read.rates.doubt());
        const std::string printed = config::to_toml(read);
        const std::string copy = fuzz::write_file("printed.toml", printed);
        fuzz::require(config::to_toml(config::read_machine(copy)) == printed, "what is printed reads back differently");
    });
    return 0;
}
