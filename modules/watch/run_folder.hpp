// runs/NAME/: run.toml (the resolved description), status.json (state and exit code), log.txt, metrics.jsonl, traces.
// Only rank 0 has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "trace/records.hpp"
#include "watch/blame.hpp"
#include "watch/run_lock.hpp"

namespace lockstep::watch {

// The state that status.json gets for a run ended by this error.
inline std::string state_after(const Error& error) {
    return error.is_connection_error() ? "lost" : "failed";
}

class RunFolder {
  public:
    // Creates and locks the folder; a second launch of the same run is a usage error that names the first.
    explicit RunFolder(const std::string& path);

    const std::string& path() const { return path_; }
    void write_description(const std::string& toml) const;
    // state: "running", "finished", "stopped", "failed", "lost" (a rank died, or communication failed).
    // Failing to write it is a warning. Static: a rank that fails alone writes it in rank 0's place.
    static void write_status(const std::string& folder, const std::string& state, std::int64_t step, int exit_code,
                             const std::string& reason, const NodeBlame& blame = {});
    // rates.json, the self-test's results: "" if missing; failing to write it is a warning.
    static std::string read_rates(const std::string& folder);
    static void write_rates(const std::string& folder, const std::string& json);
    // products.json, which algorithms compute matrix products: nothing if missing, "" if it cannot be read. A damaged
    // one becomes products.json.broken.
    static std::optional<std::string> read_products(const std::string& folder);
    static void write_products(const std::string& folder, const std::string& json);
    static void set_products_aside(const std::string& folder);
    // Drops the lines after `step`, which the resumed run repeats, and opens the file for appending.
    void open_metrics(std::int64_t step);
    void write_step(const trace::StepNumbers& numbers);
    void write_validation(std::int64_t step, double validation_loss, double bits_per_byte);  // 0: unknown
    bool stop_file_exists() const;  // a file named "stop" requests a checkpoint and an orderly end
    void remove_stop_file() const;

  private:
    void write_metrics_line(const std::string& line);
    std::string path_;
    RunLock lock_;
    OpenFile metrics_;
    bool metrics_writable_ = true;
};

}  // namespace lockstep::watch
