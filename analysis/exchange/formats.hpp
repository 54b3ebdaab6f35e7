// What `lockstep-analyze export` writes, a function for each format. Caveats are logged.
#pragma once

#include <string>
#include <vector>

#include "analysis/exchange/output.hpp"
#include "analysis/load/measurement.hpp"
#include "trace/reader.hpp"

namespace lockstep::analysis {

// The JSON of Chrome's trace viewer, which Perfetto opens: a process for each rank of each launch, the events of the
// sampled steps, memory at the end of every step. A run without events is a usage error. Holds the events of one file
// at a time.
void write_chrome_trace(const trace::Run& run, Output& output);

// An OTF2 archive, traces.otf2 in the folder: a location for each rank of each launch with the same events, memory in
// one more for each launch. A run without events is a usage error. Holds the events of one file and 64 MiB at a time.
// Only where has_otf2().
void write_otf2(const trace::Run& run, const OutputFolder& folder);
bool has_otf2();

// A line for each step, rank and region: step,rank,region,seconds,calls.
void write_csv(const trace::Run& run, Output& output);

// TensorBoard's event file: the numbers of every step, all launches joined, and the description of each launch.
void write_tensorboard(const trace::Run& run, Output& output);
// Its path below `folder`, in which each run has a folder of its name. Usage errors: an imported run.
std::string tensorboard_path(const trace::Run& run, const std::string& folder);

// MLPerf's log lines: settings under its names, blocks of training, validations, the numbers of every step. Usage
// error: an imported run.
void write_mllog(const trace::Run& run, Output& output);

// Extra-P's text format: one parameter p, the number of ranks; a region for the step and one for each phase, with the
// seconds of every step that counts as repetitions. Runs at the same number of ranks are repetitions too; those that
// were set up differently are a usage error, as is a single number of ranks.
void write_extra_p(const std::vector<Measurement>& measurements, Output& output);

}  // namespace lockstep::analysis
