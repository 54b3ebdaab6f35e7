// What an unfinished calibration has measured so far.
#include "calibrate/kept_rounds.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("machine.toml.rounds", fuzz::text_of(data, size));
    fuzz::judge(size, [&] { calibrate::read_rounds(path, "settings"); });
    return 0;
}
