// Starts `lockstep train` on random tokens and reads from its trace how fast it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct TrainingCase {
    std::string preset;
    std::int64_t batch = 0, length = 0, micro = 0;  // sequences a step, tokens a sequence, sequences a forward pass
    std::string precision = "fp32";
    std::int64_t ranks = 1;
    std::vector<std::string> settings = {};  // further ones, "parallel.tensor=2"
};

// "gpt2-124m 4x64 fp32, 1 rank"; further settings in brackets
std::string name_of(const TrainingCase& training);

// What it sets in addition to the run name, the data and the number of steps.
std::vector<std::string> settings_of(const TrainingCase& training);

struct TrainingResult {
    double step_seconds = 0;                            // of the median step
    double tokens_per_second = 0, flop_per_second = 0;  // of all ranks, in the median step
    double peak_bytes = 0;                              // of the largest rank, until the checkpoint at the end begins
    double checkpoint_seconds = 0, checkpoint_bytes = 0;
    std::int64_t threads = 0;  // of a rank
};

constexpr std::int64_t vocabulary = 50257;   // of every case
constexpr std::int64_t uncounted_steps = 2;  // they pay for generated code and for first touches of memory

// Random tokens in the format of llm.c, which lockstep reads too: `count` of them.
void write_random_tokens(const std::string& path, std::int64_t count);

class Trainings {
  public:
    // Works in `folder`, which exists, and leaves the tokens there. Usage error: `program` cannot be started.
    Trainings(const std::string& program, std::string folder);
    const std::string& folder() const { return folder_; }
    // `steps` steps, of which those after the uncounted ones count. A run that ends with an error throws what it said.
    TrainingResult run(const TrainingCase& training, std::int64_t steps) const;

  private:
    std::string program_, folder_, tokens_;
};

// The program `name` in the folder of this one.
std::string beside_this_program(const std::string& name);

}  // namespace lockstep::bench
