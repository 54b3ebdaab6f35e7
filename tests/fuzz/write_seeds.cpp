// fuzz_seeds FOLDER: writes the seeds of each target NAME to FOLDER/NAME.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "fuzz/seeds.hpp"

int main(int count, char** arguments) {
    if (count != 2) {
        std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
        return 2;
    }
    for (const auto& [target, inputs] : lockstep::fuzz::seeds()) {
        const std::filesystem::path folder = std::filesystem::path(arguments[1]) / target;
        std::filesystem::create_directories(folder);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const std::filesystem::path path = folder / ("seed-" + std::to_string(i));
            std::ofstream file(path, std::ios::binary);
            file << inputs[i];
            file.close();
            if (!file) {
                std::fprintf(stderr, "%s cannot be written\n", path.c_str());
                return 1;
            }
        }
    }
    return 0;
}
