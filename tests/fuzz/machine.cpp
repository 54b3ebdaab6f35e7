// Machine descriptions.
#include "config/machine.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("machine.toml", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const std::string printed = config::to_toml(config::read_machine(path));
        const std::string copy = fuzz::write_file("printed.toml", printed);
        fuzz::require(config::to_toml(config::read_machine(copy)) == printed, "what is printed reads back differently");
    });
    return 0;
}
