// Runs that are trained on stand-ins for GPUs.
#pragma once

#include "end_to_end/command.hpp"

namespace lockstep::tests {

// Small enough for threads that are fibers; 13 steps pass the first recorded step, the one with exact times, and more.
constexpr const char* small_run =
    " --set model.width=32 --set model.mlp_width=48 --set model.layers=3 --set model.context=16 --set batch.global=12"
    " --set batch.micro=1 --set schedule.steps=13 --set schedule.warmup=4 --set checkpoint.every=50"
    " --set data.validation=0.01 --set validation.batches=1 --set parallel.bucket_bytes=20000 ";

inline std::string train(const std::string& more, const std::string& device = "cuda") {
    return std::string("train run.toml") + small_run + "--device " + device + " " + more;
}

inline std::string gpus(int count, int seed = 0) {
    return "LOCKSTEP_EMULATED_GPUS=" + std::to_string(count) + " LOCKSTEP_EMULATION_SEED=" + std::to_string(seed);
}

inline void check_near(const fs::path& a, const fs::path& b, double tolerance) {
    for (const std::string key : {"loss", "gradient_norm", "validation_loss"}) {
        BOOST_TEST(!numbers_of(a, key).empty());
        BOOST_TEST(largest_difference(numbers_of(b, key), numbers_of(a, key)) <= tolerance, key);
    }
}

inline void check_same(const fs::path& a, const fs::path& b) {
    for (const std::string key : {"loss", "gradient_norm", "validation_loss"}) {
        BOOST_TEST(!numbers_of(a, key).empty());
        BOOST_TEST((numbers_of(a, key) == numbers_of(b, key)), key << " differs");
    }
}

struct Trained {
    Workplace place;
    int count = 0;
    // The folder of a finished run.
    fs::path run(const std::string& arguments, int ranks, const std::string& environment) {
        const fs::path folder = place.twin("run" + std::to_string(++count));
        const Result result = lockstep::tests::run(arguments, folder, ranks, environment);
        check_exit(result, 0);
        return folder;
    }
};

}  // namespace lockstep::tests
