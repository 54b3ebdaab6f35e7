#include "train/control.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "base/plural.hpp"
#include "watch/stop_request.hpp"

namespace lockstep::train {
namespace {

constexpr double poll_seconds = 1;  // for the stop file: file systems may be slow

// How far a checkpoint is, in one number: the largest of all ranks tells both.
enum Level : std::int64_t { idle, pending, writing };
std::int64_t level(bool is_writing, bool is_pending) {
    return is_writing ? writing : is_pending ? pending : idle;
}

}  // namespace

void Agreement::add(const Agreement& later) {
    stop = std::max(stop, later.stop);
    flush = flush || later.flush;
    save = save || later.save;
    probe_links = probe_links || later.probe_links;
    checkpoint_writing = checkpoint_writing || later.checkpoint_writing;
    checkpoint_pending = checkpoint_pending || later.checkpoint_pending;
    local_writing = local_writing || later.local_writing;
    local_pending = local_pending || later.local_pending;
}

std::int64_t Control::stop_after(std::int64_t step) const {
    const std::int64_t stop_at = launch_.options.stop_at;
    return stop_at > 0 && step >= stop_at ? stop_at_step : go_on;
}

std::int64_t Control::requested_stop() {
    if (watch::requested_signal() != 0) return stop_for_signal + watch::requested_signal();
    if (!launch_.root()) return go_on;
    const double now = seconds_now();
    std::int64_t stop = go_on;
    if (now - last_poll_ > poll_seconds) {
        last_poll_ = now;
        if (launch_.folders.run->stop_file_exists()) stop = stop_file;
    }
    const double minutes = launch_.options.stop_after_minutes;
    if (minutes > 0 && now - launch_.started > minutes * 60) stop = stop_for_time;
    return stop;
}

Agreement Control::agree(Agreement own) {
    std::vector<std::int64_t> values = {requested_stop(),
                                        own.flush ? 1 : 0,
                                        own.save ? 1 : 0,
                                        own.probe_links ? 1 : 0,
                                        level(own.checkpoint_writing, own.checkpoint_pending),
                                        level(own.local_writing, own.local_pending),
                                        static_cast<std::int64_t>(own.slowest_seconds * 1e9)};
    const trace::Scope timed(tracer_, regions_.all);
    const trace::Scope within(tracer_, regions_.control);
    launch_.control->all_reduce(values, cluster::Reduce::maximum);
    Agreement all;
    all.stop = values[0];
    all.flush = values[1] != 0;
    all.save = values[2] != 0;
    all.probe_links = values[3] != 0;
    all.checkpoint_writing = values[4] == writing;
    all.checkpoint_pending = values[4] >= pending;
    all.local_writing = values[5] == writing;
    all.local_pending = values[5] >= pending;
    all.slowest_seconds = static_cast<double>(values[6]) * 1e-9;
    return all;
}

std::string Control::reason(std::int64_t stop) const {
    if (stop == stop_at_step) return fmt::format("--stop-at {}", launch_.options.stop_at);
    if (stop == stop_for_time)
        return fmt::format("--stop-after {} minute{}", launch_.options.stop_after_minutes,
                           plural(launch_.options.stop_after_minutes));
    if (stop == stop_file) return "the file \"stop\" in the run folder";
    return fmt::format("signal {}", watch::signal_word(static_cast<int>(stop - stop_for_signal)));
}

}  // namespace lockstep::train
