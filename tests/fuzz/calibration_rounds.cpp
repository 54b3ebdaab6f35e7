// What an unfinished calibration has measured so far.
#include "calibrate/kept_rounds.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("machine.toml.rounds", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const calibrate::KeptRounds read = calibrate::read_rounds(path, "settings");
        if (read.seconds.empty()) return;
        const std::string copy = calibrate::rounds_file(fuzz::folder() + "/copy");
        calibrate::write_rounds(copy, "settings", read);
        const calibrate::KeptRounds again = calibrate::read_rounds(copy, "settings");
        fuzz::require(again.seconds == read.seconds && again.busy_share == read.busy_share,
                      "what is written reads back differently");
    });
    return 0;
}
