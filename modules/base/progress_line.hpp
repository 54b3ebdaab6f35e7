// How far a long piece of work is: on a terminal in a line that the next one overwrites, else in the log every 10 s.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class ProgressLine {
  public:
    explicit ProgressLine(std::string title);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void show(std::int64_t done, std::int64_t all);

  private:
    std::string title_;
    double begun_, shown_;  // seconds_now()
};

}  // namespace lockstep
