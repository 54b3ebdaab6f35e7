// The finished rounds of a calibration, in a file next to the one it will write: an interrupted calibration resumes
// after them.
#pragma once

#include <string>
#include <vector>

namespace lockstep::calibrate {

std::string rounds_file(const std::string& machine_file);  // "machine.toml.rounds"

struct KeptRounds {
    std::vector<std::vector<double>> seconds;  // [measurement][round]
    double busy_share = 0;                     // the most that other programs used of the cores before any of them
};
// Empty where there is no file, or none of the same settings: these are anything that the times depend on, in one line.
KeptRounds read_rounds(const std::string& path, const std::string& settings);
void write_rounds(const std::string& path, const std::string& settings, const KeptRounds& rounds);

}  // namespace lockstep::calibrate
